"""Why a device does not resolve, or would fail when the container starts: files, runtime and host compared.

The reference library only says "unresolvable", and a runtime fails later with words of its own. Here the specification
files are compared with each other, with what the runtime reads, and with the host: device nodes and their numbers,
libraries, hook programs. Every finding says what, where, and what to do; nothing is changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from .cache import CdiCache
from .errors import CdiError
from .host_findings import ERROR, WARNING, Finding, HostView, Inspector, edit_findings
from .reasons import why_unresolved
from .runtimes import RuntimeCdi
from .scan import Scan
from .spec import CdiSpec
from .versions import VERSIONS

__all__ = ["examine", "summary"]


def examine(
    cache: CdiCache,
    host: HostView,
    *,
    name: str = "",
    runtimes: Sequence[RuntimeCdi] = (),
    consumer_version: str = "",
    root: str = "",
    driver_root: str = "",
    inspectors: Sequence[Inspector] = (),
) -> list[Finding]:
    """Everything that is wrong with the specifications, or with one device.

    Args:
        cache: the specification directories.
        host: the machine on which containers would start.
        name: a qualified name to look at; "" means all.
        runtimes: what the machine's runtimes read.
        consumer_version: the newest specification version that the consumer knows; "" for what the runtimes tell.
        root: the directory that stands for the machine, a prefix of the cache's directories.
        driver_root: where the driver's files are on the machine; "" if unknown.
        inspectors: what vendors know of their nodes.
    """
    scan = cache.scan()
    findings = [finding for runtime in runtimes for finding in _runtime(cache, runtime, root)]
    findings += _files(cache, scan, consumer_version, runtimes)
    resolved = [cache.find(known) for known in ([name] if name else cache.devices())]
    if name and resolved[0] is None:
        findings.insert(0, _unresolved(cache, scan, name))
    seen: set[str] = set()
    for found in resolved:
        if found is None:
            continue
        if found.path not in seen:
            seen.add(found.path)
            findings += edit_findings(
                found.spec.raw.container_edits,
                found.path,
                f"every device of {found.spec.kind}",
                host,
                driver_root=driver_root,
                inspectors=inspectors,
            )
        findings += edit_findings(
            found.device.container_edits,
            found.path,
            found.name,
            host,
            driver_root=driver_root,
            inspectors=inspectors,
        )
    return sorted(dict.fromkeys(findings), key=lambda finding: finding.level != ERROR)


def _unresolved(cache: CdiCache, scan: Scan, name: str) -> Finding:
    reason = why_unresolved(name, scan, cache.conflicts(), cache.devices())
    return Finding(
        "unresolved", ERROR, name, f"{name} does not resolve: {reason}", "drakkar cdi list shows the names that do"
    )


def _runtime(cache: CdiCache, runtime: RuntimeCdi, root: str) -> Iterator[Finding]:
    if not runtime.enabled:
        yield Finding(
            "cdi-disabled",
            ERROR,
            runtime.runtime,
            f"CDI is off in {runtime.runtime}, so no device is injected",
            f"set {runtime.setting} and restart {runtime.runtime}",
            runtime.source,
        )
    aliases = {"/run/cdi": "/var/run/cdi"}
    read = {aliases.get(directory, directory) for directory in runtime.directories}
    for directory in cache.directories:
        specs = [spec for spec in cache.specs() if spec.path.startswith(directory + "/")]
        inside = os.path.abspath(directory).removeprefix(root)  # noqa: PTH100 - lexical, links stay
        if specs and aliases.get(inside, inside) not in read:
            yield Finding(
                "directory-not-read",
                ERROR,
                directory,
                f"{runtime.runtime} reads {', '.join(runtime.directories)}, not {inside}, which has"
                f" {len(specs)} specification(s)",
                f"add {inside} to {runtime.directories_setting}, or write the files to a directory that it reads",
                runtime.source,
            )


def _files(cache: CdiCache, scan: Scan, consumer_version: str, runtimes: Sequence[RuntimeCdi]) -> Iterator[Finding]:
    consumers = {each.runtime: each.knows for each in runtimes if each.knows}
    if consumer_version:
        consumers = {"the consumer": consumer_version}
    for directory, message in scan.directory_errors.items():
        yield Finding("directory-unreadable", ERROR, directory, message, f"ls -ld {directory}", directory)
    for path in scan.ignored:
        yield Finding(
            "file-ignored",
            WARNING,
            path,
            f"{path} is not read: only .json and .yaml files directly in the directory are",
            f"rename it to .yaml, or move it up: mv {path} {os.path.splitext(path)[0]}.yaml",  # noqa: PTH122
            path,
        )
    for found in scan.files:
        if found.error is not None:
            yield _load_error(found.path, found.error)
        elif found.spec is not None:
            yield from _spec(found.path, found.spec, consumers)
    for name, paths in cache.conflicts().items():
        yield Finding(
            "conflict",
            ERROR,
            name,
            f"{' and '.join(paths)} both define {name}, so it exists for nobody",
            "keep one of the files; a backup copy must not end in .yaml or .json",
            paths[0],
        )
    yield from _shadowed(cache, scan)


_BY_TEXT: Final = {
    "spec version must be at least": "version-too-low",
    "empty device edits": "empty-edits",
    "invalid spec, no devices": "empty-edits",
}


def _load_error(path: str, error: CdiError) -> Finding:
    code = {"Unreadable": "file-unreadable", "NotYaml": "not-yaml"}.get(error.reason, "invalid")
    code = next((known for text, known in _BY_TEXT.items() if text in error.message), code)
    fix = {
        "file-unreadable": f"ls -l {path}; a specification should have mode 0644",
        "version-too-low": "declare the version that the message names, or leave the newer field out",
        "empty-edits": "generate the file when the driver is loaded: it found nothing for that device",
    }.get(code, "correct the place that the message names, or generate the file again")
    return Finding(code, ERROR, path, error.message, fix, error.subject or path)


def _spec(path: str, spec: CdiSpec, consumers: Mapping[str, str]) -> Iterator[Finding]:
    for problem in spec.warnings:
        yield Finding("doubtful", WARNING, path, str(problem), "correct it where the file is generated", path)
    declared = spec.raw.cdi_version.removeprefix("v")
    for consumer, known in consumers.items():
        if known not in VERSIONS or VERSIONS.index(declared) <= VERSIONS.index(known):
            continue
        needed = spec.minimum_version
        possible = VERSIONS.index(needed) <= VERSIONS.index(known)
        yield Finding(
            "consumer-too-old",
            ERROR,
            path,
            f"{path} declares version {declared}, {consumer} knows versions up to {known}",
            f"declare {needed}, which is enough for this file"
            if possible
            else f"generate it with --max-cdi-version {known}, or upgrade {consumer}",
            path,
        )


def _shadowed(cache: CdiCache, scan: Scan) -> Iterator[Finding]:
    """Definitions below that a broken file above leaves in force."""
    names = cache.devices()
    for found in scan.files:
        if found.error is None:
            continue
        stale = [name for name in names if (winner := cache.find(name)) and winner.priority < found.priority]
        if stale:
            yield Finding(
                "stale-definition",
                WARNING,
                found.path,
                f"{found.path} cannot be loaded, so older definitions of {', '.join(stale[:4])} stay in force",
                "repair or remove it",
                found.path,
            )


def summary(findings: Sequence[Finding]) -> str:
    """One line for a terminal."""
    errors = sum(finding.level == ERROR for finding in findings)
    if not findings:
        return "nothing is wrong"
    return f"{errors} error{'s' if errors != 1 else ''}, {len(findings) - errors} warnings"
