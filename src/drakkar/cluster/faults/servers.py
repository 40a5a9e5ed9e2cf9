"""Faults of the API server: slow, or refusing, for everybody or until told otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drakkar.cluster.apiserver.trouble import Trouble
from drakkar.cluster.faults.fault import Arguments, ClusterFault, seconds
from drakkar.errors import DrakkarError

if TYPE_CHECKING:
    from drakkar.cluster.cluster import Cluster

__all__ = ["SERVER_FAULTS"]

_LONGEST: Final = 60.0


async def _slow(cluster: Cluster, arguments: Arguments) -> str:
    delay = _delay(arguments, 0.5)
    cluster.server.trouble = Trouble(delay=delay)
    return f"every request waits {delay:g} s, until api-restored"


async def _refusing(cluster: Cluster, arguments: Arguments) -> str:
    lasting = _delay(arguments, 5.0)
    until = cluster.server.clock.monotonic() + lasting
    cluster.server.trouble = Trouble(refuse_until=until)
    return f"every request is refused with 503 for {lasting:g} s, or until api-restored"


async def _restored(cluster: Cluster, _arguments: Arguments) -> str:
    cluster.server.trouble = None
    return "the API server answers as usual"


def _delay(arguments: Arguments, default: float) -> float:
    value = seconds(arguments, default)
    if not 0 < value <= _LONGEST:
        raise DrakkarError(f"{value:g} s is too long or too short", reason="BadRequest", expected="up to 60 s")
    return value


SERVER_FAULTS: Final[dict[str, ClusterFault]] = {
    "api-slow": ClusterFault("every request to the API server waits", _slow, takes=("seconds",)),
    "api-refusing": ClusterFault("the API server refuses every request for a while", _refusing, takes=("seconds",)),
    "api-restored": ClusterFault("the API server answers as usual again", _restored),
}
