"""The grammar of Kubernetes paths: which verb on which resource a request means (`k8s.io/apiserver` RequestInfo).

``/api/v1/namespaces/NS/pods/NAME/SUB`` and ``/apis/GROUP/VERSION/…`` name resources, the prefix ``watch/`` is the old
form of ``?watch=true``, everything else is a non-resource path. The same reading serves authorisation and routing, as
in the original, so that nothing can be routed to what was not authorised.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

import msgspec

_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NAMESPACE_SUBRESOURCES = {"status", "finalize"}


class RequestInfo(msgspec.Struct):
    """What a request asks for. For non-resource requests only `path` and `verb` count."""

    path: str
    verb: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""


def request_info(method: str, path: str, query: Mapping[str, str]) -> RequestInfo:
    """Read method and path. Never fails: what is no resource path is a non-resource request."""
    info = RequestInfo(path, method.lower())
    parts = path.strip("/").split("/")
    if "%" in path:
        parts = [unquote(part) for part in parts]
    if parts[0] == "api" and len(parts) >= 3:
        info.version, parts = parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        info.group, info.version, parts = parts[1], parts[2], parts[3:]
    else:
        return info
    info.is_resource = True
    info.verb = _VERBS.get(method, "")
    old_watch = parts[0] == "watch" and len(parts) > 1
    if old_watch:
        parts = parts[1:]
    if parts[0] == "namespaces" and len(parts) > 1:
        info.namespace = parts[1]
        if len(parts) > 2 and parts[2] not in _NAMESPACE_SUBRESOURCES:
            parts = parts[2:]
    info.resource = parts[0]
    info.name = parts[1] if len(parts) > 1 else ""
    info.subresource = parts[2] if len(parts) > 2 else ""
    info.rest = "/".join(parts[3:])
    if old_watch:
        info.verb = "watch"
    elif info.verb == "get" and not info.name:
        info.verb = "watch" if truth(query.get("watch", "")) else "list"
    elif info.verb == "delete" and not info.name:
        info.verb = "deletecollection"
    return info


def truth(text: str) -> bool:
    """A boolean query parameter as `strconv.ParseBool` after the conversion of query values reads it."""
    return text not in ("", "0", "f", "F", "false", "False", "FALSE")
