"""Which cluster a command talks to: the flags, then ``$KUBECONFIG``, then ``~/.kube/config``, then an embedded one.

The order is kubectl's; the embedded cluster comes last, so that it never stands in for a real one by accident.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from drakkar.kube import kubeconfig as kubeconfigs
from drakkar.kube.client import Client
from drakkar.kube.https import HttpsTransport
from drakkar.kube.kubeconfig import Connection

if TYPE_CHECKING:
    from drakkar.evidence.captures import NodeCapture


def connect(kubeconfig: Path | None, context: str) -> tuple[Client, Connection]:
    """A client and the connection it uses. Raises `KubeconfigError`."""
    if kubeconfig is None and not os.environ.get("KUBECONFIG") and not Path("~/.kube/config").expanduser().exists():
        kubeconfig = _embedded()
    connection = kubeconfigs.load(kubeconfig, context=context)
    return Client(HttpsTransport(connection), user_agent="drakkar"), connection


def node_captures(connection: Connection) -> dict[str, NodeCapture]:
    """What the nodes' own files show, if the cluster is an embedded one of this user; nothing otherwise."""
    from drakkar.cluster import places
    from drakkar.cluster.captures import capture_nodes

    for name in places.names():
        record = places.running(name)
        if record is not None and record.server == connection.server:
            return capture_nodes(places.places(name, Path(record.data) if record.durable else None))
    return {}


def _embedded() -> Path | None:
    from drakkar.cluster import places

    records = [record for record in map(places.running, places.names()) if record is not None]
    records.sort(key=lambda record: record.name != "default")
    return Path(records[0].kubeconfig) if records else None
