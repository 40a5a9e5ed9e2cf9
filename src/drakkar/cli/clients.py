"""Which cluster a command talks to: the flags, then ``$KUBECONFIG``, then ``~/.kube/config``, then an embedded one.

The order is kubectl's; the embedded cluster comes last, so that it never stands in for a real one by accident.
"""

from __future__ import annotations

import os
from pathlib import Path

from drakkar.kube import kubeconfig as kubeconfigs
from drakkar.kube.client import Client
from drakkar.kube.https import HttpsTransport
from drakkar.kube.kubeconfig import Connection


def connect(kubeconfig: Path | None, context: str) -> tuple[Client, Connection]:
    """A client and the connection it uses. Raises `KubeconfigError`."""
    if kubeconfig is None and not os.environ.get("KUBECONFIG") and not Path("~/.kube/config").expanduser().exists():
        kubeconfig = _embedded()
    connection = kubeconfigs.load(kubeconfig, context=context)
    return Client(HttpsTransport(connection), user_agent="drakkar"), connection


def _embedded() -> Path | None:
    from drakkar.cluster import places

    records = [record for record in map(places.running, places.names()) if record is not None]
    records.sort(key=lambda record: record.name != "default")
    return Path(records[0].kubeconfig) if records else None
