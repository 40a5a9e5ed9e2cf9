"""Reading from the API server inside a call of the kubelet: what passes by itself is waited out.

A driver's error costs its pod 60 to 90 s, since the kubelet looks at the pod again at its next resync only
(`syncFrequency`). So an answer that will be another in a moment is none: a server that cannot be reached or is
overloaded is asked again as long as the call may take, one that refuses for three seconds, since authorizers learn of
roles, and of which pod of a node uses which claim, by watches that may lag (KEP-4381 has the kubelet's side of it).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from drakkar.drivers.kit.kind import PreparationError
from drakkar.errors import DrakkarError
from drakkar.kube.apierrors import ApiError, UnreachableError
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock
from drakkar.kube.resources import RESOURCE_CLAIMS, Resource
from drakkar.preparation.values import ClaimRef

_log = logging.getLogger(__name__)

#: How long being refused may mean that the authorizer does not know it yet.
REFUSED_SECONDS = 3.0

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
_OVERLOADED = frozenset({408, 429, 500, 502, 503, 504})
_REFUSED = frozenset({401, 403})


async def read_claim(client: Client, clock: Clock, ref: ClaimRef, *, until: float) -> Mapping[str, Any]:
    """The claim that the kubelet names, read `until` (monotonic seconds) at most.

    Raises:
        PreparationError: it does not exist.
        ApiError, UnreachableError: as `read` does.
    """
    soon = clock.monotonic() + REFUSED_SECONDS
    try:
        return await read(client, clock, RESOURCE_CLAIMS, ref.name, ref.namespace, until=until, refused_until=soon)
    except ApiError as error:
        if not error.not_found:
            raise
        raise PreparationError(
            f"claim {ref.namespace}/{ref.name} does not exist", reason="ClaimNotFound", subject=str(ref)
        ) from None


async def read(
    client: Client,
    clock: Clock,
    resource: Resource,
    name: str,
    namespace: str,
    *,
    until: float,
    refused_until: float = 0.0,
) -> Mapping[str, Any]:
    """The object, as the API server has it now.

    Args:
        until: when to give up on a server that gives no answer, in the clock's monotonic seconds.
        refused_until: when a refusal is final; the first one is by default.

    Raises:
        ApiError: the answer that stays, with its status.
        UnreachableError: there was none.
    """
    pause, told = _FIRST_PAUSE, False
    while True:
        try:
            return await client.get(resource, name, namespace)
        except (ApiError, UnreachableError) as error:
            if clock.monotonic() + pause > _worth_asking_until(error, until, refused_until):
                raise
            if not told:
                _log.warning("%s %s/%s is asked for again: %s", resource.kind, namespace, name, error)
                told = True
        await clock.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _worth_asking_until(error: DrakkarError, until: float, refused_until: float) -> float:
    if not isinstance(error, ApiError) or error.status in _OVERLOADED:
        return until
    return min(refused_until, until) if error.status in _REFUSED else 0.0
