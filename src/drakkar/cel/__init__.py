"""The CEL dialect of Kubernetes device selectors (KEP-4381), as a library.

    environment = device_environment()
    program = environment.compile('device.attributes["gpu.example.com"].model == "a100"')
    evaluation = program.evaluate({"device": DeviceValue.from_json("gpu.example.com", device)})

What it accepts, what it answers, what it costs and how it fails is what the CEL library of Kubernetes 1.37 does; the
language itself is specified at https://github.com/google/cel-spec.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drakkar.cel.clauses import Clause, ClauseResult
    from drakkar.cel.device import DeviceValue
    from drakkar.cel.environment import Environment, device_environment
    from drakkar.cel.errors import CelError, Issue
    from drakkar.cel.program import Evaluation, Program

__all__ = [
    "CelError",
    "Clause",
    "ClauseResult",
    "DeviceValue",
    "Environment",
    "Evaluation",
    "Issue",
    "Program",
    "device_environment",
]

_HOME = {
    "CelError": "errors",
    "Clause": "clauses",
    "ClauseResult": "clauses",
    "DeviceValue": "device",
    "Environment": "environment",
    "Evaluation": "program",
    "Issue": "errors",
    "Program": "program",
    "device_environment": "environment",
}


def __getattr__(name: str) -> Any:  # the command line starts faster when nobody evaluates selectors
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"drakkar.cel.{_HOME[name]}"), name)
