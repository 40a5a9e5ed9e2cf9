"""What is left of a pool's shared counters (KEP-4815): partitions of one device take from what they have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from drakkar.kube.quantity import Quantity

Object = Mapping[str, Any]
_NOTHING = Quantity.parse("0")


class Counter(NamedTuple):
    """One counter of a counter set."""

    set: str
    name: str

    def __str__(self) -> str:
        return f"{self.set}/{self.name}"


class Counters:
    """The counters of a pool less what the devices `taken` (names) consume."""

    def __init__(self, slices: Sequence[Object], taken: Iterable[str]) -> None:
        self._left: dict[Counter, Quantity] = {}
        devices: dict[str, Object] = {}
        for piece in slices:
            spec = piece.get("spec") or {}
            for shared in spec.get("sharedCounters") or ():
                for name, counter in (shared.get("counters") or {}).items():
                    self._left[Counter(shared.get("name", ""), name)] = Quantity.from_json(counter.get("value"))
            devices.update((device.get("name", ""), device) for device in spec.get("devices") or ())
        for name in taken:
            if name in devices:
                self.take(devices[name])

    def short(self, device: Object) -> str:
        """The first counter of which a device needs more than is left, "" if there is enough of all."""
        for counter, amount in _consumed(device):
            if self._left.get(counter, _NOTHING) < amount:
                return str(counter)
        return ""

    def take(self, device: Object) -> None:
        """Take what a device consumes."""
        for counter, amount in _consumed(device):
            self._left[counter] = self._left.get(counter, _NOTHING) - amount

    def copy(self) -> Counters:
        """The same amounts, to be used up independently."""
        other = Counters((), ())
        other._left = dict(self._left)
        return other


def _consumed(device: Object) -> Iterator[tuple[Counter, Quantity]]:
    for consumption in device.get("consumesCounters") or ():
        for name, counter in (consumption.get("counters") or {}).items():
            yield Counter(consumption.get("counterSet", ""), name), Quantity.from_json(counter.get("value"))
