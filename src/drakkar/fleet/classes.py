"""Which devices a DeviceClass selects: its CEL selectors evaluated on every device, as the allocator would.

A selector that cannot be compiled or that fails on a device selects nothing; saying why is diagnosis' business.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from drakkar.fleet.devices import FleetDevice

__all__ = ["classes_of_devices"]

_PATIENCE: Final = 5.0  # seconds for one class: a poisonous selector must not keep everybody waiting


def classes_of_devices(
    classes: Iterable[Mapping[str, Any]], devices: Iterable[FleetDevice]
) -> dict[str, list[FleetDevice]]:
    """By class name, in the order of the classes: the devices it selects."""
    from drakkar.cel import CelError, device_environment
    from drakkar.cel.device import DeviceValue

    environment = device_environment(mode="stored")
    values = []
    for device in devices:
        try:
            values.append((device, {"device": DeviceValue.from_json(device.key.driver, dict(device.device))}))
        except CelError:
            continue  # no selector can be evaluated on it
    found: dict[str, list[FleetDevice]] = {}
    for obj in classes:
        name = (obj.get("metadata") or {}).get("name") or ""
        texts = [
            (selector.get("cel") or {}).get("expression") or ""
            for selector in (obj.get("spec") or {}).get("selectors") or ()
        ]
        try:
            programs = [environment.compile(text) for text in texts]
        except CelError:
            found[name] = []
            continue
        end = time.monotonic() + _PATIENCE

        def late(end: float = end) -> bool:
            return time.monotonic() > end

        found[name] = [
            device
            for device, bindings in values
            if not late() and all(_true(program, bindings, late) for program in programs)
        ]
    return found


def _true(program: Any, bindings: Mapping[str, Any], late: Callable[[], bool]) -> bool:
    from drakkar.cel import CelError

    try:
        return program.evaluate(bindings, deadline=late).value is True
    except CelError:
        return False
