"""kubeconfig files: which server, which CA, which credentials.

The search order is kubectl's: an explicit path, ``$KUBECONFIG`` (a list of files, the first that has an entry wins),
``~/.kube/config``, and at last the service account of the pod. Credential plugins (`exec`) are not run here.
"""

from __future__ import annotations

import base64
import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from drakkar.errors import DrakkarError
from drakkar.kube import yamltext

_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class KubeconfigError(DrakkarError):
    """No usable kubeconfig."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach one API server. Certificates and keys are PEM bytes; `token_file` is read again when it changes."""

    server: str
    ca: bytes | None = None
    token: str = ""
    token_file: Path | None = None
    client_certificate: bytes | None = None
    client_key: bytes | None = None
    username: str = ""
    password: str = ""
    insecure: bool = False
    namespace: str = "default"


def load(path: str | Path | None = None, *, context: str = "") -> Connection:
    """The connection of the current (or named) context. Raises `KubeconfigError`."""
    if path is not None:
        files = [Path(path)]
    elif os.environ.get("KUBECONFIG"):
        files = [Path(part) for part in os.environ["KUBECONFIG"].split(os.pathsep) if part]
    else:
        files = [Path("~/.kube/config").expanduser()]
    documents = [(file, _read(file)) for file in files if file.exists()]
    if not documents:
        if path is None and not os.environ.get("KUBECONFIG") and (_POD / "token").exists():
            return _in_cluster()
        raise KubeconfigError(
            f"no kubeconfig: {' and '.join(map(str, files))} {'does' if len(files) == 1 else 'do'} not exist",
            reason="KubeconfigMissing",
            next_step="start a cluster with `drakkar up`, or set KUBECONFIG or --kubeconfig",
        )
    return _resolve(documents, context)


def _resolve(documents: list[tuple[Path, dict[str, Any]]], context: str) -> Connection:
    name = context or next((doc["current-context"] for _, doc in documents if doc.get("current-context")), "")
    where = ", ".join(str(file) for file, _ in documents)
    if not name:
        raise KubeconfigError("the kubeconfig has no current context", subject=where, next_step="pass --context")
    chosen, _ = _entry(documents, "contexts", "context", name, where)
    cluster, cluster_base = _entry(documents, "clusters", "cluster", chosen.get("cluster", ""), where)
    user: dict[str, Any] = {}
    user_base = Path()
    if chosen.get("user"):
        user, user_base = _entry(documents, "users", "user", chosen["user"], where)
    if not cluster.get("server"):
        raise KubeconfigError(f"cluster {chosen.get('cluster')!r} has no server", subject=where)
    if user.get("exec") or user.get("auth-provider"):
        raise KubeconfigError(
            f"user {chosen['user']!r} needs a credential plugin, which is not supported",
            subject=where,
            expected="a token, a token file or a client certificate",
        )
    token_file = user.get("tokenFile")
    return Connection(
        server=cluster["server"].rstrip("/"),
        ca=_material(cluster, "certificate-authority", cluster_base, where),
        token=user.get("token", ""),
        token_file=user_base / token_file if token_file else None,
        client_certificate=_material(user, "client-certificate", user_base, where),
        client_key=_material(user, "client-key", user_base, where),
        username=user.get("username", ""),
        password=user.get("password", ""),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        namespace=chosen.get("namespace") or "default",
    )


def _entry(
    documents: list[tuple[Path, dict[str, Any]]], section: str, key: str, name: str, where: str
) -> tuple[dict[str, Any], Path]:
    for file, document in documents:
        for entry in document.get(section) or ():
            if isinstance(entry, dict) and entry.get("name") == name:
                return entry.get(key) or {}, file.parent
    raise KubeconfigError(f"the kubeconfig has no {key} named {name!r}", subject=where)


def _material(entry: dict[str, Any], key: str, base: Path, where: str) -> bytes | None:
    try:
        if entry.get(f"{key}-data"):
            return base64.b64decode(entry[f"{key}-data"], validate=True)
        if entry.get(key):
            return Path(base / entry[key]).read_bytes()
    except (ValueError, OSError) as error:
        raise KubeconfigError(f"cannot read {key}: {error}", subject=where) from error
    return None


def _read(file: Path) -> dict[str, Any]:
    try:
        document = _parsed(file.read_bytes())
    except (OSError, yamltext.YamlError) as error:
        raise KubeconfigError(f"cannot read the kubeconfig: {error}", subject=str(file)) from error
    if not isinstance(document, dict):
        raise KubeconfigError("the kubeconfig is not a mapping", subject=str(file))
    return document


def _parsed(data: bytes) -> Any:
    """JSON is YAML, and needs no YAML library: a driver keeps those megabytes for months."""
    if data.startswith(b"{"):
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(data)
    return yamltext.load(data)


def _in_cluster() -> Connection:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if ":" in host:
        host = f"[{host}]"
    namespace = _POD / "namespace"
    return Connection(
        server=f"https://{host}:{port}",
        ca=(_POD / "ca.crt").read_bytes(),
        token_file=_POD / "token",
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )
