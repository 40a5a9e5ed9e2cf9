"""What a fault is, and how its arguments are read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drakkar.errors import DrakkarError

if TYPE_CHECKING:
    from drakkar.cluster.cluster import Cluster
    from drakkar.cluster.nodes import EmbeddedNode

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a node.

    Attributes:
        about: one line of help.
        needs: arguments beside the node that it cannot do without.
        takes: further arguments that it understands.
    """

    about: str
    inject: Callable[[Cluster, EmbeddedNode, Arguments], Awaitable[str]]
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterFault:
    """A fault of the whole cluster: no node is named. Fields as for `Fault`."""

    about: str
    inject: Callable[[Cluster, Arguments], Awaitable[str]]
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


def gpu_index(node: EmbeddedNode, arguments: Arguments) -> int:
    """The argument `gpu`, an index of a GPU that the node has."""
    index, count = number(arguments, "gpu"), len(node.machine.devices())
    if not 0 <= index < count:
        raise DrakkarError(f"{node.name} has no GPU {index}", reason="UnknownDevice", expected=f"0 to {count - 1}")
    return index


def number(arguments: Arguments, key: str, default: int | None = None) -> int:
    """A whole number among the arguments."""
    value = arguments.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise DrakkarError(f"{value!r} is no number", reason="BadRequest", subject=key)
    return value


def seconds(arguments: Arguments, default: float) -> float:
    """The argument `seconds`; negative ones go back in time where that means something."""
    value = arguments.get("seconds", default)
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 10**9:
        raise DrakkarError(f"{value!r} is no number of seconds", reason="BadRequest", subject="seconds")
    return float(value)


def simulated(node: EmbeddedNode) -> Any:
    """Only simulated machines can be broken at will; they carry the fault methods, whatever the vendor."""
    if not hasattr(node.machine, "lose_gpu"):
        raise DrakkarError(f"the machine of {node.name} is not simulated", reason="NotSimulated")
    return node.machine
