"""Volumes of a pod as directories on the node, ready to be bind-mounted.

Each volume lies where a kubelet puts it, `<root>/pods/<uid>/volumes/kubernetes.io~<kind>/<name>`. Files of config maps,
secrets and the downward API are written once, when the pod starts, into a directory that a rename makes visible whole.
Supported: emptyDir, hostPath, configMap, secret, downwardAPI and projected (with service account tokens); any other
kind is a clear FailedMount, never a silent empty directory.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from drakkar.cluster.kubelet import podspec
from drakkar.cluster.kubelet.environment import Downward, Sources, decoded
from drakkar.cluster.kubelet.podspec import Pod
from drakkar.cluster.runtimes.runtime import Mount
from drakkar.errors import DrakkarError

_PLUGINS: Final = {
    "emptyDir": "empty-dir",
    "configMap": "configmap",
    "secret": "secret",
    "downwardAPI": "downward-api",
    "projected": "projected",
}
_TOKEN_SECONDS: Final = 3607
_HOST_CHECKS: Final = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket file"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}

Files = dict[str, tuple[bytes, int]]
"""Relative path → (content, mode)."""


class VolumeError(DrakkarError):
    """A volume cannot be set up now (`FailedMount`)."""


class TokenSource(Protocol):
    """Where service account tokens come from."""

    async def token(self, pod: Pod, audience: str, seconds: int) -> str: ...


class PodVolumes:
    """The volumes of one pod below the kubelet's root."""

    def __init__(self, pod: Pod, root: Path, sources: Sources, tokens: TokenSource) -> None:
        self._pod = pod
        self._directory = root / "pods" / podspec.uid(pod) / "volumes"
        self._sources = sources
        self._tokens = tokens
        self._paths: dict[str, Path] = {}

    async def set_up(self, downward: Downward) -> None:
        """Make every volume that some container mounts. Raises `VolumeError`; may be repeated."""
        for volume in self._pod["spec"].get("volumes") or ():
            name = volume["name"]
            if name in self._paths:
                continue
            kind = next((kind for kind in volume if kind != "name"), "emptyDir")
            if kind == "hostPath":
                self._paths[name] = _host_path(name, volume["hostPath"])
                continue
            if kind not in _PLUGINS:
                raise VolumeError(
                    f'MountVolume.SetUp failed for volume "{name}" : no volume plugin matched: {kind}',
                    expected=", ".join([*_PLUGINS, "hostPath"]),
                )
            path = self._directory / f"kubernetes.io~{_PLUGINS[kind]}" / name
            files = await self._files(volume, kind, downward)
            await asyncio.to_thread(_write, path, files, self._group())
            self._paths[name] = path

    def mounts(self, container: podspec.Spec, expand: Any) -> list[Mount]:
        """The container's mounts. `expand` resolves `$(NAME)` of subPathExpr. Raises `VolumeError`."""
        found = []
        for mount in container.get("volumeMounts") or ():
            source = self._paths.get(mount["name"])
            if source is None:
                raise VolumeError(f'volume "{mount["name"]}" not found')
            sub_path = expand(mount["subPathExpr"]) if mount.get("subPathExpr") else mount.get("subPath") or ""
            if sub_path:
                source = _sub_path(source, sub_path)
            propagation = {"HostToContainer": "rslave", "Bidirectional": "rshared"}.get(
                mount.get("mountPropagation") or "", "rprivate"
            )
            found.append(Mount(source, mount["mountPath"], bool(mount.get("readOnly")), propagation))
        return found

    def _group(self) -> int | None:
        group = (self._pod["spec"].get("securityContext") or {}).get("fsGroup")
        return int(group) if group is not None else None

    async def _files(self, volume: Mapping[str, Any], kind: str, downward: Downward) -> Files | None:
        """The files of a volume; None for an empty directory that belongs to the pod."""
        source = volume[kind]
        if kind == "emptyDir":
            return None
        parts = source.get("sources") or () if kind == "projected" else [{kind: source}]
        mode = int(source.get("defaultMode") or 0o644)
        files: Files = {}
        for part in parts:
            for part_kind, detail in part.items():
                try:
                    files |= await self._part(part_kind, detail, mode, downward)
                except DrakkarError as error:
                    raise VolumeError(
                        f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error.message}'
                    ) from error
        return files

    async def _part(self, kind: str, source: Mapping[str, Any], mode: int, downward: Downward) -> Files:
        mode = int(source.get("defaultMode") or mode)
        if kind == "serviceAccountToken":
            seconds = int(source.get("expirationSeconds") or _TOKEN_SECONDS)
            token = await self._tokens.token(self._pod, source.get("audience") or "", seconds)
            return {source["path"]: (token.encode(), mode)}
        if kind == "downwardAPI":
            return _downward_files(source, mode, downward)
        if kind not in ("configMap", "secret"):
            raise VolumeError(f"no projection for {kind}")
        namespace = self._pod["metadata"]["namespace"]
        name = source.get("secretName") or source.get("name") or ""
        found = await (self._sources.config_map if kind == "configMap" else self._sources.secret)(namespace, name)
        if found is None:
            if source.get("optional"):
                return {}
            raise VolumeError(f'{kind.lower()} "{name}" not found')
        return _selected(_data(kind, found), source, mode, f"{kind.lower()} {namespace}/{name}")


def _downward_files(source: Mapping[str, Any], mode: int, downward: Downward) -> Files:
    files: Files = {}
    for item in source.get("items") or ():
        if item.get("fieldRef"):
            text = downward.field(item["fieldRef"]["fieldPath"])
        else:
            text = downward.resource({}, item["resourceFieldRef"])
        files[item["path"]] = (text.encode(), int(item.get("mode") or mode))
    return files


def _data(kind: str, obj: Mapping[str, Any]) -> dict[str, bytes]:
    if kind == "secret":
        return decoded(obj)
    data = {key: value.encode() for key, value in (obj.get("data") or {}).items()}
    return data | {key: base64.b64decode(value) for key, value in (obj.get("binaryData") or {}).items()}


def _selected(data: dict[str, bytes], source: Mapping[str, Any], mode: int, subject: str) -> Files:
    items = source.get("items")
    if not items:
        return {key: (value, mode) for key, value in data.items()}
    files: Files = {}
    for item in items:
        if item["key"] in data:
            files[item["path"]] = (data[item["key"]], int(item.get("mode") or mode))
        elif not source.get("optional"):
            raise VolumeError(f"references non-existent {subject.partition(' ')[0]} key: {item['key']}")
    return files


def _write(path: Path, files: Files | None, group: int | None) -> None:
    if files is not None and path.exists():
        return  # an earlier kubelet made it and running containers may hold it
    if files is None:
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o777)
        return
    fresh = path.with_name(f".{path.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for name, (content, mode) in files.items():
        target = fresh / name
        if not target.resolve().is_relative_to(fresh.resolve()):
            raise VolumeError(f"path {name!r} leaves the volume")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(mode)
        if group is not None and os.geteuid() == 0:
            os.chown(target, -1, group)
    fresh.rename(path)


def _host_path(name: str, source: Mapping[str, Any]) -> Path:
    path, kind = Path(source["path"]), source.get("type") or ""
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif kind == "FileOrCreate":
        if not path.exists():
            path.touch()
    elif kind in _HOST_CHECKS:
        check, words = _HOST_CHECKS[kind]
        if not path.exists() or not check(path.stat().st_mode):
            raise VolumeError(
                f'MountVolume.SetUp failed for volume "{name}" : hostPath type check failed: {path} is not {words}'
            )
    elif not path.exists():
        path.mkdir(parents=True, exist_ok=True)  # as the container runtime does for a bind mount without a source
    return path


def _sub_path(volume: Path, sub_path: str) -> Path:
    target = volume / sub_path
    if Path(sub_path).is_absolute() or not target.resolve().is_relative_to(volume.resolve()):
        raise VolumeError(f"subPath {sub_path!r} must not leave the volume")
    if not target.exists():
        target.mkdir(parents=True, exist_ok=True)
    return target
