"""ValidatingAdmissionPolicy: rules in CEL that judge what is written (KEP-3488).

A policy says what it looks at and what must hold, a binding says where it counts, with which parameters and what
follows. Policies and bindings without number may be there; what of them concerns a kind is worked out once per change
of theirs. Texts of refusals are kube-apiserver's.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from drakkar.api.fields import FieldError, invalid
from drakkar.cel import CelError, Environment, Program
from drakkar.cel import types as cel_types
from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.admission import matching
from drakkar.cluster.apiserver.calls import Call, key_of
from drakkar.kube.selectors import LabelSelector

if TYPE_CHECKING:
    from drakkar.cluster.apiserver.server import ApiServer

Value = dict[str, Any]

POLICIES: Final = "validatingadmissionpolicies.admissionregistration.k8s.io"
BINDINGS: Final = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
_COST_LIMIT: Final = 1_000_000
_CODES: Final = {"Unauthorized": 401, "Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}
_VARIABLES: Final = ("object", "oldObject", "request", "params", "namespaceObject")


@dataclass(slots=True)
class _Validation:
    program: Program | CelError
    text: str
    message: str
    message_program: Program | CelError | None
    reason: str


@dataclass(slots=True)
class _Policy:
    """A policy, compiled."""

    name: str
    fails: bool
    constraints: Mapping[str, Any]
    param_kind: Mapping[str, Any] | None
    conditions: list[tuple[str, Program | CelError]]
    variables: list[tuple[str, Program | CelError]]
    validations: list[_Validation]


@dataclass(slots=True)
class _Compiled:
    """What a server's policies and bindings are at one version of both collections."""

    version: tuple[int, int] = (-1, -1)
    bound: list[tuple[_Policy, Value]] = field(default_factory=list)


_compiled: weakref.WeakKeyDictionary[ApiServer, _Compiled] = weakref.WeakKeyDictionary()


def judge(call: Call, operation: str, obj: Value | None, old: Value | None) -> None:
    """Raises `StatusError` for what a bound policy denies; warnings of policies are added to the call."""
    store = call.server.store
    if not len(store.collection(BINDINGS)) or call.row.group == "admissionregistration.k8s.io":
        return
    bound = _of(call.server)
    for policy, binding in bound:
        spec = binding.get("spec") or {}
        if not matching.matches(call, operation, obj, old, policy.constraints):
            continue
        if spec.get("matchResources") and not matching.matches(call, operation, obj, old, spec["matchResources"]):
            continue
        for message, reason in _denials(call, operation, obj, old, policy, spec):
            _act(call, obj or old or {}, policy.name, binding["metadata"]["name"], spec, message, reason)


def check(call: Call, operation: str, obj: Value, old: Value | None) -> list[FieldError]:
    """The expressions of a policy that is being written must compile."""
    del operation
    spec = obj.get("spec") or {}
    if old is not None and old.get("spec") == spec:
        return []
    found = []
    names = [variable.get("name", "") for variable in spec.get("variables") or ()]
    for path, text, boolean in _expressions(spec):
        program = _compile(text, names, boolean=boolean)
        if isinstance(program, CelError):
            found.append(invalid(path, text, f"compilation failed: {program}"))
    return found


def _expressions(spec: Value) -> Iterator[tuple[str, str, bool]]:
    for number, one in enumerate(spec.get("matchConditions") or ()):
        yield f"spec.matchConditions[{number}].expression", str(one.get("expression", "")), True
    for number, one in enumerate(spec.get("variables") or ()):
        yield f"spec.variables[{number}].expression", str(one.get("expression", "")), False
    for number, one in enumerate(spec.get("validations") or ()):
        yield f"spec.validations[{number}].expression", str(one.get("expression", "")), True
        if one.get("messageExpression"):
            yield f"spec.validations[{number}].messageExpression", str(one["messageExpression"]), False
    for number, one in enumerate(spec.get("auditAnnotations") or ()):
        yield f"spec.auditAnnotations[{number}].valueExpression", str(one.get("valueExpression", "")), False


def _denials(
    call: Call, operation: str, obj: Value | None, old: Value | None, policy: _Policy, spec: Value
) -> Iterator[tuple[str, str]]:
    """(message, reason) of what the policy denies, for each of its parameters."""
    bindings: Value = {
        "object": obj,
        "oldObject": old,
        "request": matching.admission_request(call, operation, obj, old),
        "namespaceObject": _namespace(call),
    }
    parameters: Iterable[Value | None] = [None]
    if policy.param_kind is not None:
        parameters = _parameters(call, policy.param_kind, spec.get("paramRef") or {})
        if not parameters and (spec.get("paramRef") or {}).get("parameterNotFoundAction") == "Deny":
            text = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
            yield text, "Invalid"
    for params in parameters:
        yield from _evaluate(policy, {**bindings, "params": params})


def _evaluate(policy: _Policy, bindings: Value) -> Iterator[tuple[str, str]]:
    failed: dict[str, str] = {}
    values: Value = {}
    here = {**bindings, "variables": values}
    for name, program in policy.conditions:
        try:
            if _value(program, here) is not True:
                return
        except CelError as error:
            if policy.fails:
                yield f"matchCondition {name!r} resulted in error: {error}", "Invalid"
            return
    for name, program in policy.variables:
        try:
            values[name] = _value(program, here)
        except CelError as error:
            failed[name] = str(error)  # counts only for who asks for it
    for one in policy.validations:
        try:
            if _value(one.program, here) is not True:
                yield _message(one, here), one.reason
        except CelError as error:
            if policy.fails:
                asked = next((name for name in failed if f"variables.{name}" in one.text), None)
                why = f'composited variable "{asked}" fails to evaluate: {failed[asked]}' if asked else str(error)
                yield f"expression '{one.text}' resulted in error: {why}", "Invalid"


def _value(program: Program | CelError, bindings: Value) -> Any:
    if isinstance(program, CelError):
        raise program
    return program.evaluate(bindings, cost_limit=_COST_LIMIT).value


def _message(one: _Validation, bindings: Value) -> str:
    """The expression's message if it gives a proper one, else the written one, else the expression itself."""
    if one.message_program is not None:
        try:
            text = _value(one.message_program, bindings)
        except CelError:
            text = None
        if isinstance(text, str) and text.strip() and "\n" not in text:
            return text.strip()
    return one.message or f"failed expression: {one.text.strip()}"


def _act(call: Call, about: Value, policy: str, binding: str, spec: Value, message: str, reason: str) -> None:
    actions = spec.get("validationActions") or ()
    if "Warn" in actions:
        call.warnings.append(
            f"Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {message}"
        )
    if "Deny" not in actions:
        return
    text = f"ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}"
    name = call.name or (about.get("metadata") or {}).get("name", "")
    refusal = statuses.forbidden(call.row.group, call.row.plural, name, text)
    refusal.status["reason"] = reason
    refusal.status["code"] = _CODES.get(reason, 422)
    refusal.status["details"]["causes"] = [{"message": text}]
    raise refusal


# --- what policies and bindings there are ---------------------------------------------------------------------------


def _of(server: ApiServer) -> list[tuple[_Policy, Value]]:
    policies, bindings = server.store.collection(POLICIES), server.store.collection(BINDINGS)
    present = policies.objects(), bindings.objects()
    version = (
        max((one.version for one in present[0]), default=0) * 1_000_003 + len(present[0]),
        max((one.version for one in present[1]), default=0) * 1_000_003 + len(present[1]),
    )
    known = _compiled.setdefault(server, _Compiled())
    if known.version != version:
        compiled = {one.value["metadata"]["name"]: _compiled_policy(one.value) for one in present[0]}
        known.bound = [
            (compiled[name], one.value)
            for one in present[1]
            if (name := (one.value.get("spec") or {}).get("policyName")) in compiled
        ]
        known.bound.sort(key=lambda pair: (pair[0].name, pair[1]["metadata"]["name"]))
        known.version = version
    return known.bound


def _compiled_policy(policy: Value) -> _Policy:
    spec = policy.get("spec") or {}
    names = [variable["name"] for variable in spec.get("variables") or ()]
    return _Policy(
        policy["metadata"]["name"],
        spec.get("failurePolicy", "Fail") != "Ignore",
        spec.get("matchConstraints") or {},
        spec.get("paramKind"),
        [(one["name"], _compile(one["expression"], names, boolean=True)) for one in spec.get("matchConditions") or ()],
        [(one["name"], _compile(one["expression"], names, boolean=False)) for one in spec.get("variables") or ()],
        [
            _Validation(
                _compile(one["expression"], names, boolean=True),
                one["expression"],
                one.get("message", ""),
                _compile(one["messageExpression"], names, boolean=False) if one.get("messageExpression") else None,
                one.get("reason") or "Invalid",
            )
            for one in spec.get("validations") or ()
        ],
    )


def _compile(text: str, names: Iterable[str], *, boolean: bool) -> Program | CelError:
    try:
        return _environment(boolean).compile(text)
    except CelError as error:
        return error


_environments: dict[bool, Environment] = {}


def _environment(boolean: bool) -> Environment:
    """What expressions of policies may name; objects are what their JSON is."""
    if boolean not in _environments:
        from drakkar.cel.libraries.catalog import libraries_for

        variables = dict.fromkeys(_VARIABLES, cel_types.DYN)
        variables["variables"] = cel_types.map_of(cel_types.STRING, cel_types.DYN)
        _environments[boolean] = Environment(
            libraries_for(37, includes=True), variables, result=(cel_types.BOOL,) if boolean else ()
        )
    return _environments[boolean]


def _namespace(call: Call) -> Value | None:
    if not call.row.namespaced:
        return None
    stored = call.server.store.collection("namespaces").get(call.info.namespace)
    return stored.value if stored is not None else None


def _parameters(call: Call, kind: Mapping[str, Any], reference: Mapping[str, Any]) -> list[Value]:
    """The parameter objects that a binding names or selects."""
    group, _, version = str(kind.get("apiVersion", "")).rpartition("/")
    row = next(
        (
            one
            for one in call.server.registry.rows()
            if (one.group, one.version, one.kind) == (group, version, kind.get("kind"))
        ),
        None,
    )
    if row is None:
        return []
    namespace = str(reference.get("namespace") or call.info.namespace or "")
    collection = call.server.store.collection(row.collection)
    if reference.get("name"):
        stored = collection.get(key_of(row, namespace, str(reference["name"])))
        return [stored.value] if stored is not None else []
    selector = LabelSelector.from_object(reference.get("selector") or {})
    found = collection.objects(f"{namespace}/" if row.namespaced and namespace else "")
    return [one.value for one in found if selector.matches(one.value["metadata"].get("labels") or {})]
