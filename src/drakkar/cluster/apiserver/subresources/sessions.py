"""exec, attach and portforward as far as any client gets: which container on which node, or why not.

The session itself is a websocket (`serving.streaming`). A plain request for one is refused, but first for the same
reasons that would refuse the session: clients that fall back from websockets show that answer.
"""

from __future__ import annotations

from typing import Any

from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.calls import Answer, Call
from drakkar.cluster.apiserver.paths import truth
from drakkar.cluster.apiserver.subresources.logs import choose_container, node_of
from drakkar.cluster.streams import NodeStreams


def locate(call: Call) -> tuple[NodeStreams, str]:
    """The node and the container that the call is for; raises `StatusError`."""
    pod = call.stored().value
    container = choose_container(pod, call.query.get("container", ""), call.name)
    node = node_of(call, pod)
    if node is None:
        raise statuses.bad_request(f"pod {call.name} does not have a host assigned")
    return node, container


def locate_pod(call: Call) -> NodeStreams:
    """The node of the pod whose port is wanted; raises `StatusError`."""
    node = node_of(call, call.stored().value)
    if node is None:
        raise statuses.bad_request(f"pod {call.name} does not have a host assigned")
    return node


async def admit(call: Call) -> None:
    """What policies and webhooks say about the connection; raises `StatusError`. They see the options it asks for."""
    admission = call.server.admission
    if admission.watches_connections:
        assert call.subresource is not None
        await admission.admit(call, "CONNECT", {"kind": call.subresource.kind, "apiVersion": "v1", **_options(call)})


def _options(call: Call) -> dict[str, Any]:
    if call.info.subresource == "proxy":
        return {"path": f"/{call.info.rest}" if call.info.rest or call.path.endswith("/") else ""}
    if call.info.subresource == "portforward":
        ports = [int(one) for one in call.repeated.get("ports", ()) if one.isdigit()]
        return {"ports": ports} if ports else {}
    options: dict[str, Any] = {
        name: True for name in ("stdin", "stdout", "stderr", "tty") if truth(call.query.get(name, ""))
    }
    if call.query.get("container"):
        options["container"] = call.query["container"]
    if call.info.subresource == "exec" and call.repeated.get("command"):
        options["command"] = list(call.repeated["command"])
    return options


async def plain(call: Call) -> Answer:
    """A request that does not ask for a websocket."""
    await admit(call)
    if call.info.subresource == "portforward":
        locate_pod(call)
    else:
        locate(call)
    raise statuses.bad_request("Upgrade request required")
