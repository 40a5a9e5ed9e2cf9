"""Who has what: a device, a node, a pod or a claim, turned into the holdings that concern it.

A target without a slash is a device: its UUID, or its name on any node. ``node/n``, ``pod/[ns/]p``, ``claim/[ns/]c``
and ``device/[node/]name`` say what they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from drakkar.errors import DrakkarError
from drakkar.fleet.devices import Fleet, FleetDevice
from drakkar.fleet.holdings import Holding

__all__ = ["Answer", "who"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a target is about: devices with their holdings, or holdings of a pod or claim.

    `devices` that nobody holds are there as well; a holding whose device is no longer published is in `holdings` only.
    """

    target: str
    devices: tuple[FleetDevice, ...]
    holdings: tuple[Holding, ...]

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain JSON."""
        return {
            "target": self.target,
            "devices": [device.to_dict() for device in self.devices],
            "holdings": [holding.to_dict() for holding in self.holdings],
        }


def who(fleet: Fleet, target: str, *, namespace: str = "default") -> Answer:
    """Answer for a target. Raises `DrakkarError` when nothing has that name."""
    word, slash, rest = target.partition("/")
    kind = _KINDS.get(word.lower()) if slash else None
    if slash and (kind is None or not rest):
        raise DrakkarError(
            f"{target!r} is no target",
            reason="InvalidTarget",
            subject=target,
            expected="NAME or UUID of a device, node/NAME, pod/NAME, claim/NAME or device/NODE/NAME",
        )
    return kind(fleet, target, rest, namespace) if kind else _device(fleet, target, target, namespace)


def _device(fleet: Fleet, target: str, name: str, _namespace: str) -> Answer:
    place, _, short = name.rpartition("/")
    found = [
        device
        for device in fleet.devices
        if (short in (device.key.device, device.uuid) and place in ("", device.node, device.key.pool))
        or name == str(device.key)
    ]
    if not found:
        import difflib

        known = [word for device in fleet.devices for word in (device.key.device, device.uuid) if word]
        near = difflib.get_close_matches(short, known, 1)
        raise DrakkarError(
            f"no device is named {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
            reason="NotFound",
            subject=target,
            next_step="drakkar free",
        )
    return _of_devices(target, found)


def _node(fleet: Fleet, target: str, name: str, _namespace: str) -> Answer:
    found = [device for device in fleet.devices if device.node == name]
    if not found and fleet.snapshot.get("Node", name) is None:
        raise DrakkarError(f"there is no node {name!r}", reason="NotFound", subject=target, next_step="drakkar free")
    return _of_devices(target, found)


def _pod(fleet: Fleet, target: str, name: str, namespace: str) -> Answer:
    space, _, short = name.rpartition("/")
    space = space or namespace
    _known(fleet, "Pod", short, space, target)
    held = [h for h in fleet.holdings if any((pod.namespace, pod.name) == (space, short) for pod in h.pods)]
    return _of_holdings(fleet, target, held)


def _claim(fleet: Fleet, target: str, name: str, namespace: str) -> Answer:
    space, _, short = name.rpartition("/")
    space = space or namespace
    _known(fleet, "ResourceClaim", short, space, target)
    return _of_holdings(fleet, target, [holding for holding in fleet.holdings if holding.claim == f"{space}/{short}"])


def _known(fleet: Fleet, kind: str, name: str, namespace: str, target: str) -> None:
    if fleet.snapshot.get(kind, name, namespace) is None:
        raise DrakkarError(f"there is no {kind} {name!r} in namespace {namespace}", reason="NotFound", subject=target)


def _of_devices(target: str, devices: list[FleetDevice]) -> Answer:
    return Answer(target, tuple(devices), tuple(holding for device in devices for holding in device.holdings))


def _of_holdings(fleet: Fleet, target: str, held: list[Holding]) -> Answer:
    keys = {holding.device for holding in held}
    return Answer(target, tuple(device for device in fleet.devices if device.key in keys), tuple(held))


_KINDS: Final[dict[str, Callable[[Fleet, str, str, str], Answer]]] = {
    **dict.fromkeys(("device", "gpu"), _device),
    **dict.fromkeys(("node", "nodes"), _node),
    **dict.fromkeys(("pod", "pods", "po"), _pod),
    **dict.fromkeys(("claim", "claims", "resourceclaim", "resourceclaims"), _claim),
}
