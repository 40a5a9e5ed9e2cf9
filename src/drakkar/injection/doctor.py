"""Why a device does not resolve, or would fail when the container starts: files, runtime and host compared.

The reference library only says "unresolvable", and a runtime fails later with words of its own. Here the specification
files are compared with each other, with what the runtime reads, and with the host: device nodes and their numbers,
libraries, hook programs. Every finding says what, where, and what to do; nothing is changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from .cache import CdiCache
from .edit import HostNode
from .errors import CdiError
from .host import lstat_node
from .model import ContainerEdits, DeviceNode
from .reasons import why_unresolved
from .runtimes import RuntimeCdi
from .scan import Scan
from .spec import CdiSpec
from .versions import VERSIONS

__all__ = ["Finding", "HostView", "RealHost", "examine", "summary", "unversioned"]

ERROR: Final = "error"  # the device does not resolve, or the container would not start
WARNING: Final = "warning"  # it works, but not as somebody thinks


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. ``code`` is stable; ``subject`` is a device, file, directory or host path."""

    code: str
    level: str
    subject: str
    message: str
    fix: str
    file: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain JSON, without empty fields."""
        fields = {
            "code": self.code,
            "level": self.level,
            "subject": self.subject,
            "message": self.message,
            "fix": self.fix,
            "file": self.file,
        }
        return {key: value for key, value in fields.items() if value}


class HostView(Protocol):
    """What the doctor may ask about a host; None means that nobody knows."""

    def node(self, path: str) -> HostNode | None:
        """The device node there; raises OSError where it is missing or something else."""
        ...

    def exists(self, path: str) -> bool | None:
        """Whether anything is there, links followed."""
        ...

    def executable(self, path: str) -> bool | None:
        """Whether it is a file that may be run."""
        ...

    def similar(self, path: str) -> list[str]:
        """Files in the same directory that differ only in their version."""
        ...


class RealHost:
    """This machine, or a directory that stands for one."""

    def __init__(self, root: str = "") -> None:
        self._root = root.rstrip("/")

    def node(self, path: str) -> HostNode | None:
        return lstat_node(self._root + path)

    def exists(self, path: str) -> bool | None:
        return os.path.exists(self._root + path)  # noqa: PTH110

    def executable(self, path: str) -> bool | None:
        return os.path.isfile(self._root + path) and os.access(self._root + path, os.X_OK)  # noqa: PTH113

    def similar(self, path: str) -> list[str]:
        directory, _, name = path.rpartition("/")
        stem = unversioned(name)
        try:
            names = os.listdir(self._root + directory)  # noqa: PTH208
        except OSError:
            return []
        return sorted(f"{directory}/{other}" for other in names if other != name and unversioned(other) == stem)


def examine(
    cache: CdiCache,
    host: HostView,
    *,
    name: str = "",
    runtime: RuntimeCdi | None = None,
    consumer_version: str = "",
) -> list[Finding]:
    """Everything that is wrong with the specifications, or with one device.

    Args:
        cache: the specification directories.
        host: the machine on which containers would start.
        name: a qualified name to look at; "" means all.
        runtime: what the runtime reads; None if unknown.
        consumer_version: the newest specification version that the consumer knows; "" if unknown.
    """
    scan = cache.scan()
    findings = [*_runtime(cache, runtime), *_files(cache, scan, consumer_version)]
    resolved = [cache.find(known) for known in ([name] if name else cache.devices())]
    if name and resolved[0] is None:
        findings.insert(0, _unresolved(cache, scan, name))
    seen: set[str] = set()
    for found in resolved:
        if found is None:
            continue
        if found.path not in seen:
            seen.add(found.path)
            findings += _edits(found.spec.raw.container_edits, found.path, f"every device of {found.spec.kind}", host)
        findings += _edits(found.device.container_edits, found.path, found.name, host)
    return sorted(dict.fromkeys(findings), key=lambda finding: finding.level != ERROR)


def unversioned(name: str) -> str:
    """A library's name without its version: ``libcuda.so.580.95.05`` and ``libcuda.so.570.1`` are the same."""
    return re.sub(r"(\.so)(\.\d+)*$", r"\1", name)


def _unresolved(cache: CdiCache, scan: Scan, name: str) -> Finding:
    reason = why_unresolved(name, scan, cache.conflicts(), cache.devices())
    return Finding(
        "unresolved", ERROR, name, f"{name} does not resolve: {reason}", "drakkar cdi list shows the names that do"
    )


def _runtime(cache: CdiCache, runtime: RuntimeCdi | None) -> Iterator[Finding]:
    if runtime is None:
        return
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
        if specs and aliases.get(directory, directory) not in read:
            yield Finding(
                "directory-not-read",
                ERROR,
                directory,
                f"{runtime.runtime} reads {', '.join(runtime.directories)}, not {directory}, which has"
                f" {len(specs)} specification(s)",
                f"add {directory} to cdi_spec_dirs of {runtime.runtime}, or write the files to one that it reads",
                runtime.source,
            )


def _files(cache: CdiCache, scan: Scan, consumer_version: str) -> Iterator[Finding]:
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
            yield from _spec(found.path, found.spec, consumer_version)
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


def _load_error(path: str, error: CdiError) -> Finding:
    code = {"Unreadable": "file-unreadable", "NotYaml": "not-yaml"}.get(error.reason, "invalid")
    if "spec version must be at least" in error.message:
        code = "version-too-low"
    fix = {
        "file-unreadable": f"ls -l {path}; a specification should have mode 0644",
        "version-too-low": "declare the version that the message names, or leave the newer field out",
    }.get(code, "correct the place that the message names, or generate the file again")
    return Finding(code, ERROR, path, error.message, fix, error.subject or path)


def _spec(path: str, spec: CdiSpec, consumer_version: str) -> Iterator[Finding]:
    for problem in spec.warnings:
        yield Finding("doubtful", WARNING, path, str(problem), "correct it where the file is generated", path)
    declared = spec.raw.cdi_version.removeprefix("v")
    if consumer_version in VERSIONS and VERSIONS.index(declared) > VERSIONS.index(consumer_version):
        needed = spec.minimum_version
        possible = VERSIONS.index(needed) <= VERSIONS.index(consumer_version)
        yield Finding(
            "consumer-too-old",
            ERROR,
            path,
            f"{path} declares version {declared}, the consumer knows versions up to {consumer_version}",
            f"declare {needed}, which is enough for this file"
            if possible
            else f"generate it with --max-cdi-version {consumer_version}, or upgrade the consumer",
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


def _edits(edits: ContainerEdits, path: str, subject: str, host: HostView) -> Iterator[Finding]:
    for node in edits.device_nodes:
        yield from _node(node, path, subject, host)
    for mount in edits.mounts:
        if host.exists(mount.host_path) is False:
            others = host.similar(mount.host_path)
            stale = f"; {others[-1]} is there: the driver was updated since" if others else ""
            yield Finding(
                "library-stale" if others else "mount-missing",
                ERROR,
                mount.host_path,
                f"{mount.host_path}, which {subject} mounts, does not exist{stale}",
                "generate the specification again" if others else "install what brings it, or generate the file again",
                path,
            )
    for hook in edits.hooks:
        if host.executable(hook.path) is False:
            yield Finding(
                "hook-missing",
                ERROR,
                hook.path,
                f"hook {hook.path} of {subject} is not there or may not be run: the container would not start",
                "install the hook's package, or generate the file with the right --hook-path",
                path,
            )
        if hook.timeout == 0:
            yield Finding(
                "hook-timeout", ERROR, hook.path, f"hook {hook.path} has timeout 0: runc ends it at once",
                "leave timeout out, or give seconds", path,
            )  # fmt: skip


def _node(node: DeviceNode, path: str, subject: str, host: HostView) -> Iterator[Finding]:
    host_path = node.host_path or node.path
    complete = bool(node.type) and (node.major != 0 or node.type == "p")
    try:
        there = host.node(host_path)
    except OSError as error:
        text = (error.strerror or str(error)).lower()
        yield Finding(
            "node-missing",
            WARNING if complete else ERROR,
            host_path,
            f"{host_path}, which {subject} needs, is not a device node of the host: {text}",
            "load the driver (nvidia-modprobe makes nodes), then generate the specification again",
            path,
        )
        return
    if there is None:
        return
    kind = "c" if node.type == "u" else node.type
    if kind and kind != there.type:
        yield Finding(
            "node-type",
            WARNING if complete else ERROR,
            host_path,
            f"{host_path} is of type {there.type}, {subject} says {kind}",
            "generate the specification again",
            path,
        )
    elif node.major and (node.major, node.minor) != (there.major, there.minor):
        yield Finding(
            "number-stale",
            ERROR,
            host_path,
            f"{host_path} has numbers {there.major}:{there.minor}, {subject} says {node.major}:{node.minor}: the"
            " container would get a node without a driver behind it",
            "generate the specification again, best without device numbers",
            path,
        )


def summary(findings: Sequence[Finding]) -> str:
    """One line for a terminal."""
    errors = sum(finding.level == ERROR for finding in findings)
    if not findings:
        return "nothing is wrong"
    return f"{errors} error{'s' if errors != 1 else ''}, {len(findings) - errors} warnings"
