"""What is to be installed: which chart, which version, with which values, as the chart will see them.

The defaults that checks need are kept in a table beside the code (`data/preflight.json`), since the chart itself is not
part of the Python package; a test holds both together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from drakkar.errors import DrakkarError
from drakkar.migration.preflight.facts import merged

OURS: Final = "drakkar"
NVIDIA: Final = "dra-driver-nvidia-gpu"


class _ChartTable(msgspec.Struct, frozen=True, rename="camel"):
    """One chart: its names, newest first, and default values."""

    names: list[str]
    version: str
    values: dict[str, Any]


@cache
def charts() -> dict[str, _ChartTable]:
    """The charts that are known, by name."""
    data = files("drakkar.migration").joinpath("data/preflight.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, _ChartTable])


@dataclass(frozen=True)
class Plan:
    """What is planned; `values` are the user's own, `effective` those with the chart's defaults below them."""

    chart: str = OURS
    version: str = ""
    values: Mapping[str, Any] | None = None
    release: str = ""

    def __post_init__(self) -> None:
        if self.chart not in charts():
            raise DrakkarError(
                f"{self.chart!r} is no chart of a GPU driver that is known here",
                reason="UnknownChart",
                subject=self.chart,
                expected="one of " + ", ".join(charts()),
            )

    @property
    def target(self) -> str:
        """The version that is planned; the newest that is known here if none was named."""
        return self.version or charts()[self.chart].version

    @property
    def names(self) -> tuple[str, ...]:
        """All names that this chart has had."""
        return tuple(charts()[self.chart].names)

    @property
    def effective(self) -> dict[str, Any]:
        """The values with the chart's defaults below them."""
        return merged(charts()[self.chart].values, self.values or {})

    def get(self, *steps: str) -> Any:
        """One effective value; None if there is none."""
        value: Any = self.effective
        for step in steps:
            value = value.get(step) if isinstance(value, Mapping) else None
        return value

    @property
    def driver_root(self) -> str:
        """Where the installed NVIDIA driver is expected."""
        return str(self.get("node", "driverRoot") if self.chart == OURS else self.get("nvidiaDriverRoot")) or "/"

    @property
    def cdi_dir(self) -> str:
        """Where CDI files are written."""
        return str(self.get("node", "cdiDir") or "/var/run/cdi")

    @property
    def gates(self) -> dict[str, bool]:
        """The driver's features that are on, by the names of NVIDIA's gates."""
        if self.chart == NVIDIA:
            gates = self.get("featureGates")
            return {str(name): value is True for name, value in gates.items()} if isinstance(gates, Mapping) else {}
        return {
            "DynamicMIG": self.get("driver", "dynamicMig") is True,
            "ConsumableShares": bool(self.get("driver", "shares")),
        }

    def daemon_pod(self) -> dict[str, Any]:
        """A pod of the planned DaemonSet, as far as it decides about nodes."""
        place = self.effective if self.chart == OURS else self.get("kubeletPlugin") or {}
        spec = {key: place[key] for key in ("nodeSelector", "affinity", "tolerations") if place.get(key)}
        return {"metadata": {"name": "preflight"}, "spec": spec}
