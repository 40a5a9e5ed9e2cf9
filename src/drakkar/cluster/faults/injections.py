"""Faults between driver and container: CDI files that are gone, damaged or there twice, a runtime that reads others."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drakkar.cluster.faults.fault import Arguments, Fault
from drakkar.errors import DrakkarError

if TYPE_CHECKING:
    from drakkar.cluster.cluster import Cluster
    from drakkar.cluster.nodes import EmbeddedNode

__all__ = ["INJECTION_FAULTS"]


async def _cdi_removed(_cluster: Cluster, node: EmbeddedNode, _arguments: Arguments) -> str:
    files = _files(node)
    for file in files:
        file.unlink()
    return f"removed from {node.name}: {_named(files)}"


async def _cdi_damaged(_cluster: Cluster, node: EmbeddedNode, _arguments: Arguments) -> str:
    files = _files(node)
    for file in files:
        data = file.read_bytes()
        file.write_bytes(data[: len(data) // 2])
    return f"cut in half on {node.name}: {_named(files)}"


async def _cdi_copied(_cluster: Cluster, node: EmbeddedNode, _arguments: Arguments) -> str:
    files = _files(node)
    for file in files:
        shutil.copyfile(file, file.with_name(f"{file.stem}.backup{file.suffix}"))
    return f"copied beside themselves on {node.name}: {_named(files)}"


async def _cdi_bare(_cluster: Cluster, node: EmbeddedNode, _arguments: Arguments) -> str:
    import json

    files = [file for file in _files(node) if file.suffix == ".json"]
    for file in files:
        spec = json.loads(file.read_text())
        for edits in (spec.get("containerEdits"), *(d.get("containerEdits") for d in spec.get("devices") or ())):
            if isinstance(edits, dict):
                edits.pop("deviceNodes", None)
                edits["env"] = [*(edits.get("env") or ()), "NVIDIA_VISIBLE_DEVICES=void"]
        file.write_text(json.dumps(spec))
    return f"without device nodes on {node.name}: {_named(files)}"


async def _cdi_elsewhere(cluster: Cluster, node: EmbeddedNode, _arguments: Arguments) -> str:
    other = node.places.cdi_dir.with_name(f"{node.places.cdi_dir.name}.other")
    other.mkdir(exist_ok=True)
    await _runtime_reads(cluster, node, (other,))
    return f"the runtime of {node.name} reads CDI files from another directory than the driver writes to"


async def _cdi_off(cluster: Cluster, node: EmbeddedNode, _arguments: Arguments) -> str:
    await _runtime_reads(cluster, node, ())
    return f"CDI is off in the runtime of {node.name}"


async def _cdi_restored(cluster: Cluster, node: EmbeddedNode, _arguments: Arguments) -> str:
    for file in node.places.cdi_dir.glob("*.backup.*"):
        file.unlink()
    await _runtime_reads(cluster, node, (node.places.cdi_dir,))
    return f"the runtime of {node.name} reads the driver's CDI files again; copies are removed"


async def _runtime_reads(cluster: Cluster, node: EmbeddedNode, directories: tuple[Path, ...]) -> None:
    """As an administrator does it: a line of the configuration, then a restart."""
    node.runtime_cdi = directories
    await node.restart_kubelet()
    cluster.server.connect_node(node.name, node.kubelet.streams)


def _files(node: EmbeddedNode) -> list[Path]:
    files = sorted(path for path in node.places.cdi_dir.iterdir() if path.suffix in (".json", ".yaml"))
    if not files:
        raise DrakkarError(
            f"there is no CDI file on {node.name}", reason="NothingToDamage", expected="a pod with a prepared claim"
        )
    return files


def _named(files: list[Path]) -> str:
    return ", ".join(file.name for file in files)


INJECTION_FAULTS: Final[dict[str, Fault]] = {
    "cdi-removed": Fault("the CDI files of prepared claims are deleted", _cdi_removed),
    "cdi-damaged": Fault("the CDI files of prepared claims are cut in half", _cdi_damaged),
    "cdi-copied": Fault("somebody keeps a copy of each CDI file beside it", _cdi_copied),
    "cdi-bare": Fault("the CDI files lose their device nodes", _cdi_bare),
    "cdi-elsewhere": Fault("the runtime reads another CDI directory than the driver's", _cdi_elsewhere),
    "cdi-off": Fault("CDI is switched off in the runtime", _cdi_off),
    "cdi-restored": Fault("the runtime reads the driver's CDI directory again", _cdi_restored),
}
