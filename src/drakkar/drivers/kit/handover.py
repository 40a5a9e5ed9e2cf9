"""Hand-over: the device of a new claim is still held by a claim that is going away.

The scheduler may give a device away the moment its claim is gone from the API, long before the kubelet has unprepared
it (a pod deleted with grace period 0). A driver that answers "already allocated" then makes the kubelet come back after
some ninety seconds; this one looks whether the holder is really going and waits inside the call for its release. A
holder that stays is a conflict, told at once and by name: the node is the last guard against handing one device out
twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from drakkar.drivers.kit.reading import read
from drakkar.kube.apierrors import ApiError
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock
from drakkar.kube.resources import PODS, RESOURCE_CLAIMS
from drakkar.preparation.claims import HeldClaim

#: How long one prepare waits for releases: below the kubelet's own deadline for the call (45 s).
WAIT_SECONDS = 30.0

_FINISHED = ("Succeeded", "Failed")


class Releases:
    """Tells those who wait that some claim was released."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def announce(self) -> None:
        """A claim was released just now."""
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self, clock: Clock, seconds: float) -> bool:
        """Waits for the next release, at most `seconds`; False if none came. Must be called before yielding."""
        release = asyncio.ensure_future(self._next.wait())
        timer = asyncio.ensure_future(clock.sleep(max(seconds, 0.0)))
        try:
            await asyncio.wait({release, timer}, return_when=asyncio.FIRST_COMPLETED)
            return release.done()
        finally:
            for task in (release, timer):
                task.cancel()
            await asyncio.gather(release, timer, return_exceptions=True)


async def why_it_stays(client: Client, clock: Clock, holder: HeldClaim, *, until: float) -> str:
    """Why the holder will not release its devices by itself; empty if it is going away.

    It goes when its claim is gone, replaced, being deleted, no longer allocated or reserved for nobody, or when every
    pod it is reserved for is gone, being deleted or finished. A client with a node's rights may not even read what no
    pod of the node refers to any more: being refused means the same as being told that it is gone. A server that
    cannot answer is asked again `until` the call must end (monotonic seconds).
    """
    namespace = holder.claim.namespace
    try:
        claim = await _claim_of(client, clock, holder, until)
    except ApiError as error:
        if _out_of_sight(error):
            return ""
        raise
    if claim is None:
        return ""
    status = claim.get("status") or {}
    if claim["metadata"].get("deletionTimestamp") or not status.get("allocation"):
        return ""
    for consumer in status.get("reservedFor") or ():
        if consumer.get("resource") != "pods":
            return f"it is reserved for {consumer.get('resource')} {consumer.get('name')}"
        if await _lives(client, clock, namespace, consumer, until):
            return f"it is in use by pod {namespace}/{consumer['name']}"
    return ""


async def is_gone(client: Client, clock: Clock, holder: HeldClaim, *, until: float) -> bool:
    """Whether the API has the holder's claim no more. Raises as `read` does: a refusal says nothing."""
    return await _claim_of(client, clock, holder, until) is None


async def _claim_of(client: Client, clock: Clock, holder: HeldClaim, until: float) -> Mapping[str, Any] | None:
    """The holder's claim; None if it is gone, or another one has its name."""
    ref = holder.claim
    try:
        claim = await read(client, clock, RESOURCE_CLAIMS, ref.name, ref.namespace, until=until)
    except ApiError as error:
        if error.not_found:
            return None
        raise
    return claim if claim["metadata"]["uid"] == ref.uid else None


async def _lives(client: Client, clock: Clock, namespace: str, consumer: Mapping[str, Any], until: float) -> bool:
    try:
        pod = await read(client, clock, PODS, consumer["name"], namespace, until=until)
    except ApiError as error:
        if _out_of_sight(error):
            return False
        raise
    metadata = pod["metadata"]
    if metadata["uid"] != consumer.get("uid") or metadata.get("deletionTimestamp"):
        return False
    return (pod.get("status") or {}).get("phase") not in _FINISHED


def _out_of_sight(error: ApiError) -> bool:
    return error.not_found or error.status == 403
