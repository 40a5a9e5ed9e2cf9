"""The feature gates of an allocator, with the defaults of a Kubernetes 1.37 scheduler.

Which devices exist, which of them are in use and how much they still give depends on these gates, so everything that
is prepared ahead is prepared per set of features. Source: the gate list of KEP-4381 and its followers, version 1.37.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from drakkar.errors import DrakkarError


@dataclass(frozen=True, slots=True)
class Features:
    """What the scheduler has turned on; the alpha ones are off."""

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable_devices: bool = True
    device_taints: bool = True
    device_binding_and_status: bool = True
    consumable_capacity: bool = True
    fractional_capacity_range: bool = True
    list_type_attributes: bool = False
    optional_node_operations: bool = False
    derived_attributes: bool = False
    compatibility_groups: bool = False

    @property
    def experimental(self) -> bool:
        """Whether upstream would answer with its experimental variant."""
        return (
            self.list_type_attributes
            or self.optional_node_operations
            or self.derived_attributes
            or self.compatibility_groups
        )

    @classmethod
    def from_json(cls, overrides: dict[str, Any] | None) -> Features:
        """Features from camelCase names ("listTypeAttributes": true); what is not named keeps its default."""
        names = {_camel(field.name): field.name for field in fields(cls)}
        chosen: dict[str, bool] = {}
        for key, value in (overrides or {}).items():
            if key not in names or not isinstance(value, bool):
                raise DrakkarError(
                    f"unknown feature {key!r}" if key not in names else f"feature {key!r} is neither true nor false",
                    reason="InvalidFeature",
                    subject=key,
                    expected="one of " + ", ".join(sorted(names)) + ", each true or false",
                )
            chosen[names[key]] = value
        return cls(**chosen)


DEFAULT_FEATURES = Features()


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
