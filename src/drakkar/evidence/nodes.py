"""Reads what this machine (or an embedded node's folder) shows: checkpoints, CDI files, what runtimes were told.

The result is the same `NodeCapture` that a bundle holds, so a diagnosis on the node and one from a tarball agree. Files
that are missing or unreadable are left out; nothing is changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from drakkar.evidence.captures import NodeCapture

__all__ = ["POD_UID_ANNOTATIONS", "read_node"]

KUBELET_ROOT: Final = Path("/var/lib/kubelet")
CDI_DIRECTORIES: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))
POD_UID_ANNOTATIONS: Final = ("io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid")
MAX_BYTES: Final = 16 << 20


def read_node(
    name: str,
    *,
    kubelet_root: Path = KUBELET_ROOT,
    cdi_directories: Sequence[Path] = CDI_DIRECTORIES,
    bundles: Path | None = None,
) -> NodeCapture:
    """What a node's files show.

    Args:
        name: the node's name.
        kubelet_root: holds ``dra_manager_state``.
        cdi_directories: in rising priority; later files of one name win.
        bundles: a folder with one OCI bundle per container, to see what the runtime injected.
    """
    files: dict[str, str] = {}
    checkpoint = _text(kubelet_root / "dra_manager_state")
    if checkpoint is not None:
        files["dra_manager_state"] = checkpoint
    for directory in cdi_directories:
        if directory.is_dir():
            listed = files.get("cdi.txt", "") + f"{directory}:\n"
            files["cdi.txt"] = listed + "".join(f"{path.name}\n" for path in _entries(directory))
        for path in _entries(directory):
            if path.suffix in (".yaml", ".json") and (text := _text(path)) is not None:
                files[f"cdi/{path.name}"] = text
    for uid, containers in _injections(bundles).items() if bundles is not None else ():
        files[f"injections/{uid}.json"] = json.dumps({"containers": containers})
    return NodeCapture(name, files)


def _injections(bundles: Path) -> dict[str, list[dict[str, Any]]]:
    """By pod UID: what the configuration of each of its containers says about devices."""
    found: dict[str, list[dict[str, Any]]] = {}
    for bundle in _entries(bundles):
        try:
            config = json.loads(_text(bundle / "config.json") or "")
        except ValueError:
            continue
        annotations = (config.get("annotations") or {}) if isinstance(config, dict) else {}
        uid = next((annotations[key] for key in POD_UID_ANNOTATIONS if key in annotations), None)
        if uid is None:
            continue
        linux = config.get("linux") or {}
        found.setdefault(uid, []).append(
            {
                "container": bundle.name,
                "devices": [
                    {key: device.get(key) for key in ("path", "type", "major", "minor")}
                    for device in linux.get("devices") or ()
                ],
                "mounts": [mount.get("destination") for mount in config.get("mounts") or ()],
                "limitations": _limitations(bundle),
            }
        )
    return found


def _limitations(bundle: Path) -> list[Any]:
    """Pairs of an edit of the configuration and what the runtime did instead of it."""
    try:
        record = json.loads(_text(bundle / "record.json") or "{}")
    except ValueError:
        return []
    found = record.get("limitations") if isinstance(record, dict) else None
    return found if isinstance(found, list) else []


def _entries(directory: Path) -> Iterator[Path]:
    try:
        yield from sorted(directory.iterdir())
    except OSError:
        return


def _text(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
