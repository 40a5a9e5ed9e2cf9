"""Paths into JSON values: `a.b[0].c[*]['d.e/f'][name=x].g`, to find, remove and keep parts."""

from __future__ import annotations

import copy
import json
import re


def parse_path(text):
    """`a.b[0].c[*]['d.e/f'][name=x].g` → list of ('key', k) | ('index', n) | ('all',) | ('where', key, value)."""
    out, i = [], 0
    token = re.compile(r"\.?([\w$@-]+)|\[(\d+)\]|(\[\*\]|\.?\*)|\['([^']+)'\]|\[((?:[\w./-]|\[\d+\])+)=([^\]]*)\]")
    while i < len(text):
        m = token.match(text, i)
        if not m:
            raise ValueError(f"bad path {text!r} at {i}")
        if m.group(1) is not None:
            out.append(("key", m.group(1)))
        elif m.group(2) is not None:
            out.append(("index", int(m.group(2))))
        elif m.group(3):
            out.append(("all",))
        elif m.group(4) is not None:
            out.append(("key", m.group(4)))
        else:
            out.append(("where", m.group(5), m.group(6)))
        i = m.end()
    return out


def _at(value, part):
    """Yield (key, child) for one path part."""
    kind = part[0]
    if (kind == "key" and isinstance(value, dict) and part[1] in value) or (
        kind == "index" and isinstance(value, list) and part[1] < len(value)
    ):
        yield part[1], value[part[1]]
    elif kind == "all":
        if isinstance(value, list):
            yield from enumerate(value)
        elif isinstance(value, dict):
            yield from list(value.items())
    elif kind == "where" and isinstance(value, list):
        for i, item in enumerate(value):
            hits = find(item, part[1])
            if hits and as_text(hits[0]) == part[2]:
                yield i, item


def as_text(value):
    return json.dumps(value) if isinstance(value, (dict, list, bool)) or value is None else str(value)


def find(value, path):
    """All values at a path."""
    found = [value]
    for part in parse_path(path) if isinstance(path, str) else path:
        found = [child for v in found for _, child in _at(v, part)]
    return found


def remove(value, path):
    parts = parse_path(path)
    for parent in find(value, parts[:-1]):
        for key in sorted(
            (k for k, _ in _at(parent, parts[-1])), reverse=True, key=lambda k: k if isinstance(k, int) else 0
        ):
            del parent[key]


def keep_only(value, paths):
    """A copy of value that holds only what the paths reach; list lengths are kept."""

    def walk(v, rests):
        if any(not r for r in rests):
            return copy.deepcopy(v)
        if isinstance(v, list):
            picked = {}
            for r in rests:
                for k, _ in _at(v, r[0]):
                    picked.setdefault(k, []).append(r[1:])
            return [walk(v[k], picked[k]) for k in sorted(picked)]
        if isinstance(v, dict):
            picked = {}
            for r in rests:
                for k, _ in _at(v, r[0]):
                    picked.setdefault(k, []).append(r[1:])
            return {k: walk(v[k], picked[k]) for k in v if k in picked}
        return v

    return walk(value, [parse_path(p) for p in paths])
