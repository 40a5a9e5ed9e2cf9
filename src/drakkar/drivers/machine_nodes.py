"""A node of a model that can be simulated, without the machine: its labels, its room, what its drivers would publish.

What a cloud provider calls a template node (with DRA, template slices): `plan` adds such nodes to a snapshot, and an
autoscaler finds out with them whether a group that has no node yet would help.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from drakkar.drivers.catalog import family_of
from drakkar.errors import DrakkarError
from drakkar.inventory.slices import Pool, slice_contents, slice_spec

__all__ = ["machine_node"]

Object = dict[str, Any]

_RESERVED: Final = 100 << 20  # bytes that a kubelet keeps for eviction


def machine_node(model: str, name: str, *, partitions: bool = False) -> list[Object]:
    """A node of a model and its slices. Raises `DrakkarError` for a model that does not exist."""
    family = family_of(model)
    with tempfile.TemporaryDirectory(prefix="drakkar-node-") as folder:
        machine = family.build(model, name, Path(folder))
        if family.pools is None:
            raise DrakkarError(f"what model {model!r} publishes is not known", reason="UnknownModel", subject=model)
        pools = family.pools(machine, name, partitions)
        about = machine.node_description
    allocatable = {
        "cpu": str(about.cpu),
        "memory": f"{max(0, about.memory - _RESERVED) // 1024}Ki",
        "pods": str(about.pods or 110),
        "ephemeral-storage": "1Ti",
    }
    labels = {
        "kubernetes.io/arch": about.architecture,
        "kubernetes.io/os": "linux",
        **about.labels,
        "kubernetes.io/hostname": name,
    }
    node: Object = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"plan:{name}", "labels": labels},
        "spec": {},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    return [node, *(piece for pool in pools for piece in _slices(pool))]


def _slices(pool: Pool) -> Iterator[Object]:
    contents = slice_contents(pool)
    for number, content in enumerate(contents):
        name = f"{pool.node_name}-{pool.driver}-{number}"
        yield {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name, "uid": f"plan:{name}"},
            "spec": slice_spec(pool, content, generation=1, count=len(contents)),
        }
