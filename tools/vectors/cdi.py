"""CDI cases against ``drakkar.injection``: one file per theme, one case a line (``cases/cdi/README.md``).

Every case runs in a fresh directory that stands for ``${ROOT}``. Files are real; device nodes of the host are answered
from a table, so no privilege is needed. Each case is compared twice where that means something: the default profile
against ``better`` (else ``expect``), the ``compat`` profile against ``expect``, ``strict`` against ``strict``.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from drakkar.injection import annotations, names, write
from drakkar.injection.cache import CdiCache
from drakkar.injection.edit import HostNode
from drakkar.injection.errors import CdiError
from drakkar.injection.host import lstat_node
from drakkar.injection.spec import CdiSpec
from tools.vectors import Outcome

DEFAULT = "cases/cdi"

Case = dict[str, Any]
ROOT = "${ROOT}"
OLDER = ("1.1.0", "0.8.1")


def run(folder: Path) -> Iterator[Outcome]:
    """Every case of every .jsonl file in the folder."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            if line.strip():
                case = json.loads(line)
                with tempfile.TemporaryDirectory() as root:
                    yield Outcome(case["name"], _guarded(case, Path(root)))


def _guarded(case: Case, root: Path) -> list[str]:
    """The differences; what an implementation raises besides CdiError counts as one."""
    try:
        return check(case, root)
    except Exception as problem:
        return [f"raised {type(problem).__name__}: {problem}"]


def check(case: Case, root: Path) -> list[str]:
    """What differs from the expectation of ``case``; [] when it passes. ``root`` is an empty directory."""
    text = json.dumps(case).replace(ROOT, str(root))
    filled = json.loads(text)
    return list(_KINDS[case["kind"]](filled, root))


def _wanted(case: Case, profile: str) -> tuple[dict[str, Any], list[str] | None]:
    """The expectation under a profile and the parts of which one must be in the message."""
    expect = dict(case["expect"])
    release = profile.removeprefix("compat-")
    if release in OLDER:
        recorded = (case.get("older") or {}).get(f"v{release}")
        expect = dict(recorded or expect)
        if recorded is None:  # it differs from the newest in wording at most
            return {"ok": bool(expect.get("ok"))} if expect.get("panic") or not expect["ok"] else expect, None
        if expect.get("panic") or not expect["ok"]:
            return {"ok": False}, None
        # Fields that the specification gave up; they are read, had no effect, and have no place in today's model.
        text = re.sub(r', "enable(CMT|MBM)": (true|false)', "", json.dumps(expect))
        return json.loads(text), None
    if expect.get("panic"):
        expect = {"ok": False}
    cores = case.get("coreAny") or ([case["core"]] if case.get("core") is not None else None)
    if profile == "default" and "better" in case:
        expect.update(case["better"])
        if "core" in case["better"]:
            cores = [case["better"]["core"]]
    if profile == "strict":
        expect = dict(case["strict"])
        cores = [expect["core"]] if "core" in expect else None
    return expect, cores


def _profiles(case: Case) -> list[str]:
    profiles = ["default", "compat", "strict"] if "strict" in case else ["default", "compat"]
    if case["kind"] == "load":
        # Release 0.8.1 was asked only where something is recorded; what is not recorded of 1.1.0 is as in the newest.
        recorded = case.get("older") or {}
        profiles += [f"compat-{release}" for release in OLDER if release == "1.1.0" or f"v{release}" in recorded]
    return profiles


def _error(profile: str, error: CdiError | None, ok: bool, cores: list[str] | None) -> Iterator[str]:
    if ok != (error is None):
        yield f"{profile}: ok is {error is None}, wanted {ok}: {error}"
    elif error is not None and cores and not any(core in str(error) for core in cores):
        yield f"{profile}: none of {cores} in {error}"


def _same(profile: str, what: str, got: Any, wanted: Any) -> Iterator[str]:
    if got != wanted:
        yield f"{profile}: {what} is {got!r}, wanted {wanted!r}"


def _load(case: Case, root: Path) -> Iterator[str]:
    data = case["text"].encode() if case.get("text") is not None else base64.b64decode(case["b64"])
    path = root / case["file"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    for profile in _profiles(case):
        wanted, cores = _wanted(case, profile)
        try:
            spec, error = CdiSpec.load(path, profile=profile), None  # type: ignore[arg-type]
        except CdiError as raised:
            spec, error = None, raised
        yield from _error(profile, error, wanted["ok"], cores)
        if spec is None or not wanted["ok"]:
            continue
        found = {
            "spec": spec.to_dict(),
            "minVersion": spec.minimum_version,
            "vendor": spec.vendor,
            "class": spec.device_class,
            "devices": sorted(spec.qualified_names()),
        }
        for key, value in found.items():
            if key in wanted:
                yield from _same(profile, key, value, wanted[key])
        if "warn" in wanted and not any(wanted["warn"] in str(warning) for warning in spec.warnings):
            yield f"{profile}: no warning with {wanted['warn']!r} in {[str(w) for w in spec.warnings]}"


def build(case: Case, root: Path) -> list[str]:
    """Makes the directories of a case; returns the configured ones in rising priority."""
    configured = []
    for entry in case["dirs"]:
        spelling = entry["path"]
        path = Path(spelling if spelling.startswith("/") else f"{root}/{spelling}")
        if not entry.get("hidden"):
            configured.append(str(path) if spelling.startswith("/") else f"{root}/{spelling}")
        if entry.get("missing"):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if "asFile" in entry:
            path.write_text(entry["asFile"])
            continue
        if "linkTo" in entry:
            path.symlink_to(root / entry["linkTo"])
            continue
        path.mkdir(parents=True, exist_ok=True)
        for name, content in (entry.get("files") or {}).items():
            _file(path / name, content, root)
    return configured


def _file(path: Path, content: Any, root: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        path.write_bytes(content.encode("utf-8"))
    elif "b64" in content:
        path.write_bytes(base64.b64decode(content["b64"]))
    elif "symlink" in content:
        target = content["symlink"]
        path.symlink_to(target)
    elif content.get("dir"):
        path.mkdir()
    else:
        path.write_text(content.get("text", ""))


def host(case: Case, root: Path) -> Callable[[str], HostNode]:
    """``lstat`` from the table of the case; whatever is not below the root is asked of this machine."""
    table = {str(root / node["path"]): node for node in case.get("hostNodes") or ()}

    def lstat(path: str) -> HostNode:
        node = table.get(os.path.normpath(path))
        if node is None:
            if path.startswith(str(root)) or path == "":
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            return lstat_node(path)
        if node["type"] not in ("b", "c", "u", "p"):
            raise OSError(0, "not a device node")
        mode = int(node.get("mode") or "644", 8)
        kind = "c" if node["type"] == "u" else node["type"]
        return HostNode(kind, node.get("major", 0), node.get("minor", 0), mode)

    return lstat


def _cache_state(cache: CdiCache) -> dict[str, Any]:
    specs: dict[str, list[str]] = {}
    for vendor in cache.vendors():
        specs[vendor] = [spec.path for spec in cache.specs(vendor)]
    winners = {}
    for name in cache.devices():
        found = cache.find(name)
        assert found is not None
        winners[name] = {"path": found.path, "priority": found.priority}
    return {
        "devices": cache.devices(),
        "vendors": cache.vendors(),
        "classes": cache.classes(),
        "winners": winners,
        "specs": specs,
        "conflicts": sorted(cache.conflicts()),
        "dirs": cache.directories,
    }


def _cache(case: Case, root: Path) -> Iterator[str]:
    directories = build(case, root)
    # The default lets a higher directory win over a conflict below it, a quirk that not every case is marked with.
    for profile in _profiles(case) if "better" in case else ["compat"]:
        wanted, _ = _wanted(case, profile)
        with CdiCache(directories, auto_refresh=False, profile=profile) as cache:  # type: ignore[arg-type]
            state = _cache_state(cache)
            errors = cache.errors()
            changed = set(case.get("better", ())) if profile == "default" else set()
            for key, value in state.items():
                if key in wanted and not ("better" in case and profile == "default" and key not in changed):
                    yield from _same(profile, key, value, wanted[key])
            for path in wanted.get("errorsFor", ()):
                if path not in errors:
                    yield f"{profile}: no error for {path}"
                errors.pop(path, None)
            yield from _file_errors(profile, errors, wanted.get("errors", {}), case.get("cores") or {})
            if "warn" in wanted and not any(wanted["warn"] in text for text in cache.warnings()):
                yield f"{profile}: no warning with {wanted['warn']!r} in {cache.warnings()}"


def _file_errors(
    profile: str, errors: dict[str, list[str]], wanted: dict[str, Any], cores: dict[str, list[str]]
) -> Iterator[str]:
    yield from _same(profile, "files with errors", sorted(errors), sorted(wanted))
    for path, parts in cores.items():
        for part in parts:
            if not any(part in message for message in errors.get(path, ())):
                yield f"{profile}: {part!r} not in the errors of {path}: {errors.get(path)}"


def _inject(case: Case, root: Path) -> Iterator[str]:
    directories = build(case, root)
    for profile in _profiles(case):
        wanted, cores = _wanted(case, profile)
        before = json.dumps(case["oci"])
        with CdiCache(directories, auto_refresh=False, profile=profile, lstat=host(case, root)) as cache:  # type: ignore[arg-type]
            config, error, warnings = case["oci"], None, []
            try:
                for _ in range(case.get("repeat") or 1):
                    config, warnings = cache.injection(config, case["devices"])
            except CdiError as raised:
                error = raised
            yield from _error(profile, error, wanted["ok"], cores)
            if json.dumps(case["oci"]) != before:
                yield f"{profile}: the input was changed"
            if error is None and wanted["ok"]:
                yield from _same(profile, "oci", config, wanted["oci"])
            if error is not None and "unresolved" in wanted:
                yield from _same(profile, "unresolved", list(error.unresolved), wanted["unresolved"] or [])
            if "warn" in wanted and not any(wanted["warn"] in text for text in warnings):
                yield f"{profile}: no warning with {wanted['warn']!r} in {warnings}"
            yield from _file_errors(profile, cache.errors(), wanted.get("fileErrors") or {}, case.get("cores") or {})


def _refresh(case: Case, root: Path) -> Iterator[str]:
    directories = build(case, root)
    automatic = not case["steps"] or case["steps"][0].get("auto", True)
    wanted, _ = _wanted(case, "default")
    with CdiCache(directories, auto_refresh=automatic) as cache:
        seen = [cache.devices()]
        for step in case["steps"]:
            _step(step, root, cache)
            seen.append(cache.devices())
        if seen not in (wanted["seen"], case["expect"]["seen"]):
            yield f"seen {seen}, wanted {wanted['seen']}"


def _step(step: dict[str, Any], root: Path, cache: CdiCache) -> None:
    def place(key: str) -> Path:
        return Path(step[key]) if step[key].startswith("/") else root / step[key]

    actions: dict[str, Callable[[], Any]] = {
        "write": lambda: place("path").write_text(step.get("text", "")),
        "move": lambda: place("from").rename(place("path")),
        "symlink": lambda: place("path").symlink_to(place("from")),
        "hardlink": lambda: place("path").hardlink_to(place("from")),
        "remove": lambda: place("path").unlink(),
        "mkdir": lambda: place("path").mkdir(parents=True, exist_ok=True),
        "rmdir": lambda: _remove_tree(place("path")),
        "touch": lambda: os.utime(place("path")),
        "chmod": lambda: place("path").chmod(0o600),
        "refresh": cache.refresh,
        "none": lambda: None,
    }
    actions[step["do"]]()


def _remove_tree(path: Path) -> None:
    for child in path.iterdir():
        _remove_tree(child) if child.is_dir() and not child.is_symlink() else child.unlink()
    path.rmdir()


def _annotations(case: Case, root: Path) -> Iterator[str]:
    wanted, cores = _wanted(case, "default")
    cores = (wanted.get("errorOneOf") and [""]) or cores
    error: CdiError | None = None
    found: dict[str, Any] = {}
    given = dict(case.get("annotations") or {})
    try:
        match case["op"]:
            case "key":
                found = {"key": annotations.annotation_key(case.get("plugin", ""), case.get("deviceID", ""))}
            case "value":
                found = {"value": annotations.annotation_value(case.get("devices") or ())}
            case "update":
                updated = annotations.annotate(
                    given, case.get("plugin", ""), case.get("deviceID", ""), case.get("devices") or ()
                )
                found = {"annotations": updated}
            case "parse":
                requested = annotations.requested_devices(given)
                found = {"keys": list(requested.keys), "devices": list(requested.devices)}
    except CdiError as raised:
        error = raised
    yield from _error("default", error, wanted["ok"], cores)
    if given != (case.get("annotations") or {}):
        yield "the given annotations were changed"
    if error is None and wanted["ok"]:
        for key, value in found.items():
            if key in wanted:
                yield from _same("default", key, value, wanted[key] or type(value)())


def _qualified(case: Case, root: Path) -> Iterator[str]:
    wanted, cores = _wanted(case, "default")
    value = case.get("value", "")
    checks = {"vendor": names.check_vendor, "class": names.check_class, "name": names.check_device}
    error: CdiError | None = None
    found: dict[str, Any] = {}
    op = case["op"]
    if op in checks:
        message = checks[op](value)
        error = CdiError(message) if message else None
    elif op == "kind":
        vendor, device_class = names.split_kind(value)
        found = {"vendor": vendor, "class": device_class}
        error = None if vendor else CdiError("no vendor")
    elif op == "join":
        found = {"qualified": names.qualified_name(case.get("vendor", ""), case.get("class", ""), value)}
    else:
        vendor, device_class, name = names.split_name(value)
        found = {"split": [vendor, device_class, name]}
        try:
            parsed = names.QualifiedName.parse(value)
            found |= {"vendor": parsed.vendor, "class": parsed.device_class, "name": parsed.name}
        except CdiError as raised:
            error = raised
    if "ok" in wanted:
        yield from _error("default", error, wanted["ok"], cores)
    for key, got in found.items():
        if key in wanted:
            yield from _same("default", key, got, wanted[key])


def _write(case: Case, root: Path) -> Iterator[str]:
    wanted, cores = _wanted(case, "default")
    if case["op"] in _NAME_OPERATIONS:
        error: CdiError | None = None
        name = ""
        try:
            name = _NAME_OPERATIONS[case["op"]](case)
        except CdiError as raised:
            error = raised
        yield from _error("default", error, wanted["ok"], cores)
        if error is None and wanted["ok"]:
            yield from _same("default", "fileName", name, wanted["fileName"])
        return
    directories = build(case, root)
    before = _listing(root)
    error = None
    try:
        if case["op"] != "remove":
            write.write_spec(directories[-1], case.get("fileName", ""), case.get("spec") or {})
        if case["op"] != "write":
            write.remove_spec(directories[-1], case.get("fileName", ""))
    except CdiError as raised:
        error = raised
    yield from _error("default", error, wanted["ok"], cores)
    if error is not None or not wanted["ok"]:
        if _listing(root) != before:
            yield "something was written in spite of the error"
        return
    after = _listing(root)
    written = {entry["path"]: entry for entry in wanted.get("written") or ()}
    changed = sorted(path for path in after if after[path] != before.get(path))
    yield from _same("default", "written", changed, sorted(written))
    yield from _same("default", "removed", sorted(set(before) - set(after)), sorted(wanted.get("removed") or ()))
    for path in changed:
        if "bytes" in written.get(path, {}):
            yield from _same("default", f"mode of {path}", stat.S_IMODE(Path(path).stat().st_mode), 0o644)
            meant = CdiSpec.from_object(case["spec"], profile="compat").to_dict()
            for profile in _profiles(case):
                again = CdiSpec.load(path, profile=profile).to_dict()  # type: ignore[arg-type]
                yield from _same(profile, path, again, meant)


_NAME_OPERATIONS: dict[str, Callable[[Case], str]] = {
    "specName": lambda case: f"{case.get('vendor', '')}-{case.get('class', '')}",
    "transientName": lambda case: (
        f"{case.get('vendor', '')}-{case.get('class', '')}_{case.get('transientID', '').replace('/', '_')}"
    ),
    "nameForSpec": lambda case: write.spec_file_name((case.get("spec") or {}).get("kind", "")),
    "nameForTransientSpec": lambda case: write.transient_spec_file_name(
        (case.get("spec") or {}).get("kind", ""), case.get("transientID", "")
    ),
}


def _listing(root: Path) -> dict[str, tuple[int, bytes | None]]:
    found: dict[str, tuple[int, bytes | None]] = {}
    for path in root.rglob("*"):
        found[str(path)] = (stat.S_IMODE(path.lstat().st_mode), path.read_bytes() if path.is_file() else None)
    return found


_KINDS: dict[str, Callable[[Case, Path], Iterator[str]]] = {
    "load": _load,
    "cache": _cache,
    "inject": _inject,
    "refresh": _refresh,
    "annotations": _annotations,
    "qualified": _qualified,
    "write": _write,
}
