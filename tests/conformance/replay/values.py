"""Comparing values with placeholders: each number stands for one value, whatever it is in this run."""

from __future__ import annotations

import copy
import json
import re

import yaml

from tests.conformance.replay.paths import as_text, find, keep_only, parse_path, remove

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
SECONDS = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ(?!\d)"
MICROS = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}Z"
AGE = r"(?:\d+(?:\.\d+)?(?:ms|[smhdy]))+"
KINDS = {
    "uid": UUID,
    "rv": r"\d+",
    "listrv": r"\d+",
    "time": SECONDS,
    "microtime": MICROS,
    "suffix": r"[a-z0-9]+",
    "hash": r"[a-z0-9]+",
    "ip": r"[0-9a-f.:]+",
    "port": r"\d+",
    "token": r"[\w.-]+",
    "continue": r"[\w=+/-]+",
    "age": AGE + r"|<unknown>|<invalid>",
    "any": r"[\s\S]*",
}
PLACEHOLDER = re.compile(r"<(" + "|".join(KINDS) + r")(?:-(\d+))?>")
DISTINCT = {"uid", "rv"}  # different numbers must be different values
TEMPLATE = re.compile(r"\{\{([^{}.]+)\.([^{}]+)\}\}")
MISSING = object()


def drop_managed_fields(value):
    if isinstance(value, dict):
        meta = value.get("metadata")
        if isinstance(meta, dict):
            meta.pop("managedFields", None)
        for v in value.values():
            drop_managed_fields(v)
    elif isinstance(value, list):
        for v in value:
            drop_managed_fields(v)


def shape(body, step):
    """Apply the step's keep / ignore / distinct and the managedFields rule; used on both sides."""
    if not isinstance(body, (dict, list)):
        return body
    body = copy.deepcopy(body)
    if not step.get("managedFields"):
        drop_managed_fields(body)
    if step.get("keep"):
        body = keep_only(body, step["keep"])
    for path in step.get("ignore", []):
        remove(body, path)
    for path in step.get("distinct", []):
        for items in find(body, path):
            seen, out = set(), []
            for item in items:
                key = json.dumps(item, sort_keys=True)
                if key not in seen:
                    seen.add(key)
                    out.append(item)
            items[:] = out
    return body


class Bindings:
    """What each numbered placeholder stands for in this run."""

    def __init__(self, values=None):
        self.values = dict(values or {})

    def copy(self):
        return Bindings(self.values)

    def take(self, other):
        self.values = other.values

    def bind(self, name, value):
        """Bind or check; returns an explanation if it does not hold."""
        if name in self.values:
            if self.values[name] != value:
                return f"<{name}> stood for {self.values[name]!r}, now {value!r}"
            return None
        kind = name.split("-")[0]
        if kind in DISTINCT:
            for other, v in self.values.items():
                if other.split("-")[0] == kind and v == value:
                    return f"<{name}> must differ from <{other}> ({value!r})"
        self.values[name] = value
        return None

    def fill(self, value):
        """Replace bound placeholders in a request by their values."""
        if isinstance(value, str):
            whole = PLACEHOLDER.fullmatch(value)
            if whole and whole.group(1) == "port" and whole.group(2):
                name = f"port-{whole.group(2)}"
                return int(self.values[name]) if name in self.values else value
            return PLACEHOLDER.sub(lambda m: self.values.get(f"{m.group(1)}-{m.group(2)}", m.group(0)), value)
        if isinstance(value, list):
            return [self.fill(v) for v in value]
        if isinstance(value, dict):
            return {self.fill(k): self.fill(v) for k, v in value.items()}
        return value


_regex_cache = {}


def template_regex(expected, collapse=False):
    key = (expected, collapse)
    if key not in _regex_cache:
        out, names, i = [], [], 0
        for m in PLACEHOLDER.finditer(expected):
            out.append(re.escape(expected[i : m.start()]))
            out.append(f"({KINDS[m.group(1)]})")
            names.append(f"{m.group(1)}-{m.group(2)}" if m.group(2) else None)
            i = m.end()
        out.append(re.escape(expected[i:]))
        _regex_cache[key] = (re.compile("".join(out)), names)
    return _regex_cache[key]


def unify_text(expected, actual, bindings, where):
    if not PLACEHOLDER.search(expected):
        return [] if expected == actual else [f"{where}: expected {expected!r}, got {actual!r}"]
    regex, names = template_regex(expected)
    m = regex.fullmatch(actual)
    if not m:
        return [f"{where}: expected {expected!r}, got {actual!r}"]
    out = []
    for name, value in zip(names, m.groups(), strict=False):
        if name:
            problem = bindings.bind(name, value)
            if problem:
                out.append(f"{where}: {problem}")
    return out


def unify(expected, actual, bindings, step, where="", pattern=()):
    """Differences between an expected value with placeholders and an actual one, as a list of sentences."""
    if (
        isinstance(expected, str)
        and PLACEHOLDER.search(expected)
        and isinstance(actual, (int, float))
        and not isinstance(actual, bool)
    ):
        actual = str(actual)
    if isinstance(expected, str) and isinstance(actual, str):
        return unify_text(expected, actual, bindings, where or "body")
    if isinstance(expected, dict) and isinstance(actual, dict):
        out, rest = [], dict(actual)
        for k, v in expected.items():
            key = bindings.fill(k)
            if key not in rest and PLACEHOLDER.search(key):
                near = [r for r in rest if template_regex(key)[0].fullmatch(r)]
                if len(near) == 1:
                    out += unify_text(key, near[0], bindings, where)
                    key = near[0]
            if key not in rest:
                out.append(f"{where}.{key}: missing, expected {shortened(v)}")
                continue
            out += unify(v, rest.pop(key), bindings, step, f"{where}.{key}".lstrip("."), (*pattern, key))
        if not step.get("contains"):
            out += [f"{where}.{k}: unexpected {shortened(v)}".lstrip(".") for k, v in rest.items()]
        return out
    if isinstance(expected, list) and isinstance(actual, list):
        contains = step.get("contains")
        if contains or _matches_any(pattern, step.get("unordered", [])):
            return unify_bag(expected, actual, bindings, step, where, pattern, contains)
        if len(expected) != len(actual):
            return [f"{where}: expected {len(expected)} items, got {len(actual)}: {shortened(actual)}"]
        out = []
        for i, (e, a) in enumerate(zip(expected, actual, strict=False)):
            out += unify(e, a, bindings, step, f"{where}[{i}]", (*pattern, i))
        return out
    if (
        type(expected) is type(actual)
        or (
            isinstance(expected, (int, float))
            and isinstance(actual, (int, float))
            and not isinstance(expected, bool)
            and not isinstance(actual, bool)
        )
    ) and expected == actual:
        return []
    return [f"{where}: expected {shortened(expected)}, got {shortened(actual)}"]


def unify_bag(expected, actual, bindings, step, where, pattern, contains):
    """Match expected items with distinct actual items in any order."""
    if not contains and len(expected) != len(actual):
        return [f"{where}: expected {len(expected)} items, got {len(actual)}: {shortened(actual)}"]
    order = sorted(range(len(expected)), key=lambda i: len(PLACEHOLDER.findall(json.dumps(expected[i]))))
    left = [20000]  # tries, against lists of many alike items

    def search(n, used, b):
        if n == len(order):
            bindings.take(b)
            return True
        i = order[n]
        for j in range(len(actual)):
            left[0] -= 1
            if j in used or left[0] < 0:
                continue
            trial = b.copy()
            if not unify(expected[i], actual[j], trial, step, where, (*pattern, i)) and search(
                n + 1, used | {j}, trial
            ):
                return True
        return False

    for i in order:
        tries = [unify(expected[i], a, bindings.copy(), step, f"{where}[{i}]", (*pattern, i)) for a in actual]
        if all(tries):
            nearest = min(tries, key=len) if tries else ["the list is empty"]
            return [f"{where}[{i}]: no item matches {shortened(expected[i])}; nearest: {'; '.join(nearest[:3])}"]
    if search(0, frozenset(), bindings.copy()):
        return []
    return [f"{where}: items do not match in any order: {shortened(actual)}"]


def _matches_any(pattern, paths):
    for path in paths:
        parts = parse_path(path)
        if len(parts) == len(pattern) and all(
            p[0] in ("all", "where") or (p[0] in ("key", "index") and p[1] == k)
            for p, k in zip(parts, pattern, strict=False)
        ):
            return True
    return False


def shortened(value, limit=300):
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else text[:limit] + "…"


def resolve(value, results):
    """Replace {{step.path}} by what that step's actual answer holds there."""
    if isinstance(value, str):

        def one(m):
            hits = find(results[m.group(1)].get("body"), m.group(2).strip())
            if not hits:
                raise KeyError(f"{m.group(0)}: nothing there in {shortened(results[m.group(1)].get('body'))}")
            return hits[0]

        whole = TEMPLATE.fullmatch(value)
        if whole:
            return copy.deepcopy(one(whole))
        return TEMPLATE.sub(lambda m: as_text(one(m)), value)
    if isinstance(value, list):
        return [resolve(v, results) for v in value]
    if isinstance(value, dict):
        return {resolve(k, results): resolve(v, results) for k, v in value.items()}
    return value
