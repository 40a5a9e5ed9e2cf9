"""The CEL environments of admission (KEP-3488, KEP-3716): which variables an expression of a policy or a webhook has.

Objects are what their JSON is, without types. The request and the namespace have declared fields, so that a mistake in
their names is told when the policy is written. `params`, `authorizer` and `variables` are there for who declares them.
What one evaluation may cost, and which messages count, is the same for rules of custom resources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from drakkar.cel import CelError, Environment, Program, types
from drakkar.cel.libraries.catalog import libraries_for
from drakkar.cel.signatures import Library
from drakkar.cel.types import Type

__all__ = [
    "AUTHORIZER", "BUDGET", "CALL_LIMIT", "CONDITIONS_BUDGET", "OUT_OF_BUDGET", "VERSION", "Compiler", "Declared",
    "compiled", "environment", "proper_message",
]  # fmt: skip

VERSION: Final = 37
"""The minor version of Kubernetes whose libraries count."""
CALL_LIMIT: Final = 1_000_000
"""What one expression may cost,"""
BUDGET: Final = 10_000_000
"""all of one policy or schema together,"""
CONDITIONS_BUDGET: Final = 2_500_000
"""and all match conditions."""
OUT_OF_BUDGET: Final = "validation failed due to running out of cost budget, no further validation rules will be run"
_LONGEST_MESSAGE: Final = 5 * 1024
AUTHORIZER: Final = types.make("struct", "kubernetes.authorization.Authorizer")
RESOURCE_CHECK: Final = types.make("struct", "kubernetes.authorization.ResourceCheck")
_STRINGS: Final = types.list_of(types.STRING)
_TEXTS: Final = types.map_of(types.STRING, types.STRING)


def _struct(name: str) -> Type:
    return types.make("struct", f"kubernetes.{name}")


_STRUCTS: Final[dict[str, dict[str, Type]]] = {
    "kubernetes.GroupVersionKind": dict.fromkeys(("group", "version", "kind"), types.STRING),
    "kubernetes.GroupVersionResource": dict.fromkeys(("group", "version", "resource"), types.STRING),
    "kubernetes.UserInfo": {
        "username": types.STRING,
        "uid": types.STRING,
        "groups": _STRINGS,
        "extra": types.map_of(types.STRING, _STRINGS),
    },
    "kubernetes.AdmissionRequest": {
        "kind": _struct("GroupVersionKind"),
        "resource": _struct("GroupVersionResource"),
        "subResource": types.STRING,
        "requestKind": _struct("GroupVersionKind"),
        "requestResource": _struct("GroupVersionResource"),
        "requestSubResource": types.STRING,
        "name": types.STRING,
        "namespace": types.STRING,
        "operation": types.STRING,
        "userInfo": _struct("UserInfo"),
        "dryRun": types.BOOL,
        "options": types.DYN,
    },
    "kubernetes.NamespaceSpec": {"finalizers": _STRINGS},
    "kubernetes.NamespaceCondition": {
        "status": types.STRING,
        "type": types.STRING,
        "lastTransitionTime": types.TIMESTAMP,
        "message": types.STRING,
        "reason": types.STRING,
    },
    "kubernetes.NamespaceStatus": {
        "conditions": types.list_of(_struct("NamespaceCondition")),
        "phase": types.STRING,
    },
    "kubernetes.NamespaceMetadata": {
        "name": types.STRING,
        "generateName": types.STRING,
        "namespace": types.STRING,
        "labels": _TEXTS,
        "annotations": _TEXTS,
        "UID": types.STRING,
        "creationTimestamp": types.TIMESTAMP,
        "deletionGracePeriodSeconds": types.INT,
        "deletionTimestamp": types.TIMESTAMP,
        "generation": types.INT,
        "resourceVersion": types.STRING,
        "finalizers": _STRINGS,
    },
    "kubernetes.Namespace": {
        "metadata": _struct("NamespaceMetadata"),
        "spec": _struct("NamespaceSpec"),
        "status": _struct("NamespaceStatus"),
    },
}


class Declared:
    """What an expression has beside the objects, the request and the namespace.

    `variables` are the types of `variables.NAME` declared before it.
    """

    __slots__ = ("authorizer", "params", "variables")

    def __init__(
        self, *, params: bool = False, authorizer: bool = False, variables: Mapping[str, Type] | None = None
    ) -> None:
        self.params = params
        self.authorizer = authorizer
        self.variables = variables

    def key(self) -> tuple[Any, ...]:
        """What tells two environments apart."""
        names = None if self.variables is None else tuple(self.variables.items())
        return self.params, self.authorizer, names


def environment(declared: Declared, libraries: Sequence[Library] = ()) -> Environment:
    """The environment of such expressions; `libraries` add implementations (the authorizer's)."""
    key = (declared.key(), *map(id, libraries))
    known = _known.get(key)
    if known is None:
        if len(_known) > _MOST:
            _known.clear()
        known = _known[key] = _made(declared, libraries)
    return known


_MOST: Final = 256
_known: dict[tuple[Any, ...], Environment] = {}


def _made(declared: Declared, extra: Sequence[Library]) -> Environment:
    variables: dict[str, Type] = {
        "object": types.DYN,
        "oldObject": types.DYN,
        "namespaceObject": _struct("Namespace"),
        "request": _struct("AdmissionRequest"),
    }
    structs: dict[str, Mapping[str, Type]] = {**_STRUCTS}
    if declared.params:
        variables["params"] = types.DYN
    if declared.authorizer:
        variables["authorizer"] = AUTHORIZER
        variables["authorizer.requestResource"] = RESOURCE_CHECK
    if declared.variables is not None:
        variables["variables"] = _struct("variables")
        structs["kubernetes.variables"] = dict(declared.variables)
    return Environment([*libraries_for(VERSION, includes=True), *extra], variables, structs=structs)


def compiled(
    text: str, declared: Declared, results: Sequence[Type] = (), libraries: Sequence[Library] = ()
) -> Program | CelError:
    """The expression, or why it does not compile or is of none of the types in `results` (empty: any)."""
    try:
        program = environment(declared, libraries).compile(text)
    except CelError as error:
        return error
    if results and program.type not in results:
        shown = types.declared_text(program.type)
        wanted = [types.declared_text(one) for one in results]
        words = wanted[0] if len(wanted) == 1 else f"one of [{' '.join(wanted)}]"
        return CelError(f"must evaluate to {words} but got {shown}", "compile", expression=text)
    return program


class Compiler:
    """Compiles the expressions of one policy in their order; a variable is known to those after it, by the type it
    turned out to have."""

    def __init__(self, spec: Mapping[str, Any], libraries: Sequence[Library] = ()) -> None:
        self._params = spec.get("paramKind") is not None
        self._variables: dict[str, Type] | None = {} if spec.get("variables") else None
        self._libraries = libraries

    def compiled(self, text: str, *results: Type, authorizer: bool = True) -> Program | CelError:
        """The expression, or what is wrong with it."""
        variables = None if self._variables is None else dict(self._variables)
        declared = Declared(params=self._params, authorizer=authorizer, variables=variables)
        return compiled(text, declared, results, self._libraries)

    def variable(self, name: str, text: str) -> Program | CelError:
        """The same for a variable, which it declares."""
        program = self.compiled(text)
        if self._variables is not None:
            self._variables[name] = types.DYN if isinstance(program, CelError) else program.type
        return program


def proper_message(value: Any) -> str:
    """What a message expression gave, if it is a message: one line of reasonable length; else ""."""
    text = value.strip() if isinstance(value, str) else ""
    return text if "\n" not in text and len(text.encode()) <= _LONGEST_MESSAGE else ""
