"""Devices that must report conditions before their pod is bound (KEP-5007): what is still missing, what has failed.

A driver publishes the names with the device, the allocator copies them into the result, and the driver reports them
in `status.devices[].conditions` of the claim. The scheduler polls every 5 s for up to 10 minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

POLL_SECONDS: Final = 5
TIMEOUT_SECONDS: Final = 600


class BindingState(NamedTuple):
    """The binding conditions of one claim."""

    pending: tuple[str, ...]  # "driver/pool/device: condition"
    failed: tuple[str, ...]

    @property
    def ready(self) -> bool:
        return not self.pending and not self.failed


def binding_state(claim: Mapping[str, Any]) -> BindingState:
    """What the allocated devices of a claim still wait for."""
    status = claim.get("status") or {}
    reported = {
        (entry.get("driver"), entry.get("pool"), entry.get("device"), entry.get("shareID")): {
            condition.get("type"): condition.get("status") for condition in entry.get("conditions") or ()
        }
        for entry in status.get("devices") or ()
    }
    pending, failed = [], []
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    for result in results:
        identity = (result.get("driver"), result.get("pool"), result.get("device"), result.get("shareID"))
        conditions = reported.get(identity, {})
        where = f"{result.get('driver')}/{result.get('pool')}/{result.get('device')}"
        failed += [
            f"{where}: {name}"
            for name in result.get("bindingFailureConditions") or ()
            if conditions.get(name) == "True"
        ]
        pending += [
            f"{where}: {name}" for name in result.get("bindingConditions") or () if conditions.get(name) != "True"
        ]
    return BindingState(tuple(pending), tuple(failed))


def needs_binding(allocation: Mapping[str, Any]) -> bool:
    """Whether a `status.allocation` has devices with binding conditions."""
    results = (allocation.get("devices") or {}).get("results") or ()
    return any(result.get("bindingConditions") for result in results)
