"""pods/log: what a container wrote, fetched from the node that runs it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.calls import Answer, Call
from drakkar.cluster.apiserver.paths import truth
from drakkar.cluster.streams import NodeStreams
from drakkar.errors import DrakkarError
from drakkar.kube.clock import parse_rfc3339

_CODES = {"BadRequest": 400, "NotFound": 404, "Forbidden": 403}


async def get(call: Call) -> Answer:
    """Streams text; refuses in the words of the pod registry (`LogLocation`)."""
    pod = call.stored().value
    container = choose_container(pod, call.query.get("container", ""), call.name)
    node = node_of(call, pod)
    if node is None:
        return Answer(200, "", b"", "text/plain")
    since = call.query.get("sinceSeconds", "")
    seconds = float(since) if since.isdigit() else None
    if call.query.get("sinceTime"):
        try:
            seconds = (call.now - parse_rfc3339(call.query["sinceTime"])).total_seconds()
        except ValueError:
            raise statuses.bad_request(f'parsing time "{call.query["sinceTime"]}"') from None
    chunks = node.logs(
        call.info.namespace,
        call.name,
        container,
        follow=truth(call.query.get("follow", "")),
        tail_lines=call.integer("tailLines"),
        previous=truth(call.query.get("previous", "")),
        timestamps=truth(call.query.get("timestamps", "")),
        since_seconds=seconds,
        limit_bytes=call.integer("limitBytes"),
    )
    try:
        first = await anext(chunks, None)
    except DrakkarError as error:
        raise node_refusal(error) from None
    return Answer(200, content_type="text/plain", stream=_chunks(first, chunks))


async def _chunks(first: bytes | None, rest: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    if first is None:
        return
    yield first
    async for chunk in rest:
        yield chunk


def node_refusal(error: DrakkarError) -> statuses.StatusError:
    """What the node says, as a Status."""
    code = _CODES.get(error.reason, 500)
    return statuses.StatusError(statuses.status(code, error.message, error.reason if code != 500 else "InternalError"))


def choose_container(pod: dict[str, Any], wanted: str, name: str) -> str:
    """The container of that name, or the only one (or the annotated default); raises `StatusError` 400."""
    spec = pod["spec"]
    names = [one["name"] for one in spec.get("containers") or ()]
    init = [one["name"] for one in spec.get("initContainers") or ()]
    ephemeral = [one["name"] for one in spec.get("ephemeralContainers") or ()]
    if not wanted:
        if len(names) == 1:
            return str(names[0])
        default = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container", "")
        if default in names:
            return str(default)
        message = f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
        if init:
            message += f" or one of the init containers: [{' '.join(init)}]"
        raise statuses.bad_request(message)
    if wanted not in (*names, *init, *ephemeral):
        raise statuses.bad_request(f"container {wanted} is not valid for pod {name}")
    return wanted


def node_of(call: Call, pod: dict[str, Any]) -> NodeStreams | None:
    """The node that runs the pod; None if it has none yet. Raises `StatusError` if it cannot be reached."""
    name = pod["spec"].get("nodeName", "")
    if not name:
        return None
    node = call.server.node(name)
    if node is None:
        if call.server.store.collection("nodes").get(name) is None:
            raise statuses.not_found("", "pods", name)  # the registry names what the request is about
        raise _unreachable(call, name)
    return node


def _unreachable(call: Call, name: str) -> statuses.StatusError:
    stored = call.server.store.collection("nodes").get(name)
    addresses = (stored.value.get("status") or {}).get("addresses") or [] if stored is not None else []
    if not addresses:
        return statuses.internal("no preferred addresses found; known addresses: []", bare=True)
    return statuses.internal(f"error dialing backend: no kubelet of node {name} is connected", bare=True)
