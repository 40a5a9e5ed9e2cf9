"""What the nodes of an embedded cluster show from the outside: their files, and what their machines' tools would print.

Only folders are read, so that it works from another process than the cluster's own, as an administrator would log in
to a node and look.
"""

from __future__ import annotations

import contextlib

import msgspec

from drakkar.cluster.places import Places
from drakkar.cluster.requests import NodeRequest
from drakkar.drivers.catalog import family_of
from drakkar.errors import DrakkarError
from drakkar.evidence.captures import NodeCapture
from drakkar.evidence.nodes import read_node

__all__ = ["capture_nodes"]


def capture_nodes(where: Places) -> dict[str, NodeCapture]:
    """By name: what each node of the cluster shows; what cannot be read is left out."""
    try:
        nodes = msgspec.json.decode((where.data / "nodes.json").read_bytes(), type=list[NodeRequest])
    except (OSError, msgspec.DecodeError):
        return {}
    return {request.name: _capture(where, request) for request in nodes}


def _capture(where: Places, request: NodeRequest) -> NodeCapture:
    root = where.node_data(request.name)
    found = read_node(
        request.name,
        kubelet_root=root / "kubelet",
        cdi_directories=[where.node_cdi(request.name)],
        bundles=where.data / "runtime" / "containers",
    )
    files = dict(found.files)
    with contextlib.suppress(OSError):
        files["crictl-info.json"] = (root / "kubelet" / "crictl-info.json").read_text()
    with contextlib.suppress(DrakkarError, OSError):
        family = family_of(request.model)
        files.update(family.captured(family.build(request.model, request.name, root / "machine")))
    return NodeCapture(request.name, files)
