"""exec, attach and portforward as far as any client gets: which container on which node, or why not.

The session itself is a websocket (`serving.streaming`). A plain request for one is refused, but first for the same
reasons that would refuse the session: clients that fall back from websockets show that answer.
"""

from __future__ import annotations

from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.calls import Answer, Call
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


def plain(call: Call) -> Answer:
    """A request that does not ask for a websocket."""
    if call.info.subresource == "portforward":
        locate_pod(call)
    else:
        locate(call)
    raise statuses.bad_request("Upgrade request required")
