"""Device taints and tolerations (KEP-5055): which taints keep a device from being allocated.

Only NoSchedule and NoExecute block; each blocking taint needs one matching toleration. Unknown effects are ignored so
that new ones can be introduced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

_BLOCKING: Final = ("NoSchedule", "NoExecute")


def untolerated(
    taints: Sequence[Mapping[str, Any]], tolerations: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The taints that block and that nothing tolerates, in order."""
    return [
        taint
        for taint in taints
        if taint.get("effect") in _BLOCKING and not any(tolerates(entry, taint) for entry in tolerations)
    ]


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Whether one toleration covers one taint."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    return bool(operator == "Equal" and (toleration.get("value") or "") == (taint.get("value") or ""))
