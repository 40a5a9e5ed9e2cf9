"""Why a device name does not resolve, from what the last look at the directories found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from .errors import CdiError
from .names import QualifiedName, split_name
from .scan import Scan

__all__ = ["why_unresolved"]

_SHOWN: Final = 8


def why_unresolved(name: str, scan: Scan, conflicts: Mapping[str, Sequence[str]], known: Sequence[str]) -> str:
    """One sentence for ``name``, the most certain reason first; "" if there is nothing to say.

    Args:
        name: the requested name, qualified or not.
        scan: the directories as they were found.
        conflicts: conflicting names with their files.
        known: all names that do resolve, sorted.
    """
    if name in conflicts:
        return f"{name} is in conflict, defined by {' and '.join(conflicts[name])}"
    try:
        QualifiedName.parse(name)
    except CdiError as error:
        return error.message
    vendor, device_class, _ = split_name(name)
    kind = f"{vendor}/{device_class}"
    broken = [str(found.error.message) for found in scan.files if found.error is not None]
    siblings = [other.partition("=")[2] for other in known if other.partition("=")[0] == kind]
    reasons = []
    if broken:
        reasons.append(f"{len(broken)} specification(s) could not be loaded: {'; '.join(broken[:_SHOWN])}")
    reasons.extend(scan.directory_errors.values())
    if scan.ignored:
        reasons.append(
            f"ignored, not directly in the directory or not .json or .yaml: {', '.join(scan.ignored[:_SHOWN])}"
        )
    if siblings:
        more = f" and {len(siblings) - _SHOWN} more" if len(siblings) > _SHOWN else ""
        reasons.append(f"{kind} has {', '.join(siblings[:_SHOWN])}{more}")
    elif not broken:
        reasons.append(f"no specification defines {kind}" if scan.files else "the directories hold no specification")
    return "; ".join(reasons)
