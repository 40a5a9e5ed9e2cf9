"""ValidatingAdmissionPolicy: rules in CEL that judge what is written (KEP-3488).

A policy says what it looks at and what must hold, a binding says where it counts, with which parameters and what
follows. Policies and bindings without number may be there; what of them concerns a kind is worked out once per change
of theirs. Texts of refusals are kube-apiserver's. Audit annotations are evaluated, since their failure is a refusal;
there is no audit log that would have them.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from drakkar.cel import CelError, Program, types
from drakkar.cel.values import Failure
from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.admission import authorizing, matching
from drakkar.cluster.apiserver.admission.asked import GROUP, Asked, Value, request_of
from drakkar.cluster.apiserver.calls import key_of
from drakkar.cluster.apiserver.conversions import to_served
from drakkar.cluster.apiserver.resources import ApiResource
from drakkar.cluster.machinery.advice import UNASKED
from drakkar.cluster.machinery.expressions import (
    BUDGET,
    CALL_LIMIT,
    CONDITIONS_BUDGET,
    OUT_OF_BUDGET,
    Compiler,
    Declared,
    compiled,
    proper_message,
)
from drakkar.kube.selectors import LabelSelector

if TYPE_CHECKING:
    from drakkar.cluster.apiserver.server import ApiServer

POLICIES: Final = f"validatingadmissionpolicies.{GROUP}"
BINDINGS: Final = f"validatingadmissionpolicybindings.{GROUP}"
_CODES: Final = {"Unauthorized": 401, "Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}

Compiled = Program | CelError


class ConfigurationError(Exception):
    """A binding that cannot be applied; the failure policy decides."""


class OutOfBudgetError(Exception):
    """A policy's expressions together cost more than a request may spend on them."""


@dataclass(slots=True)
class _Validation:
    program: Compiled
    text: str
    message: str
    message_program: Compiled | None
    reason: str


@dataclass(slots=True)
class _Policy:
    """A policy, compiled."""

    name: str
    fails: bool
    constraints: Mapping[str, Any]
    param_kind: Mapping[str, Any] | None
    conditions: list[tuple[str, Compiled]]
    variables: dict[str, Compiled]
    validations: list[_Validation]
    annotations: list[tuple[str, Compiled]]


@dataclass(slots=True)
class _Present:
    """What a server's policies and bindings are at one version of both collections."""

    version: tuple[int, int] = (-1, -1)
    bound: list[tuple[_Policy, list[Value]]] = field(default_factory=list)


_present: weakref.WeakKeyDictionary[ApiServer, _Present] = weakref.WeakKeyDictionary()


def judge(asked: Asked) -> None:
    """Raises `StatusError` for what a bound policy denies; warnings of policies are added to the call.

    All policies are asked, so that none of their warnings is lost; the first denial is told.
    """
    row = asked.row
    if row.group == GROUP or (row.group, row.plural) in UNASKED:
        return
    denied: tuple[str, str] | None = None
    for policy, bindings in _of(asked.call.server):
        seen = matching.matched(asked, policy.constraints)
        if seen is None:
            continue
        unknown = _unknown_parameters(asked, policy)
        if unknown:
            if policy.fails and denied is None:
                text = (
                    f"ValidatingAdmissionPolicy '{policy.name}' denied request: failed to configure policy: {unknown}"
                )
                denied = text, "Invalid"
            continue
        for binding in bindings:
            spec = binding.get("spec") or {}
            if spec.get("matchResources") and not matching.matches(asked, spec["matchResources"]):
                continue
            told = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding['metadata']['name']}'"
            actions = spec.get("validationActions") or ()
            for message, reason, always in _denials(asked, seen, policy, spec):
                if "Warn" in actions and not always:
                    asked.call.warnings.append(f"Validation failed for {told}: {message}")
                if ("Deny" in actions or always) and denied is None:
                    denied = f"{told} denied request: {message}", reason
    if denied is not None:
        raise _refusal(asked, *denied)


def _refusal(asked: Asked, text: str, reason: str) -> statuses.StatusError:
    row = asked.row
    refusal = statuses.forbidden(row.group, row.plural, asked.object_name or "Unknown", text)
    refusal.status["reason"] = reason
    refusal.status["code"] = _CODES.get(reason, 422)
    refusal.status["details"]["causes"] = [{"message": text}]
    return refusal


def _denials(asked: Asked, seen: ApiResource, policy: _Policy, spec: Value) -> Iterator[tuple[str, str, bool]]:
    """(message, reason, whether it denies whatever the binding's actions are) of what the policy denies."""
    obj, old = asked.objects(seen)
    bindings: Value = {
        "object": obj,
        "oldObject": old,
        "request": {**request_of(asked, seen), "options": asked.given_options()},
        "namespaceObject": _namespace(asked),
        **authorizing.bindings(asked),
    }
    try:
        parameters = _parameters(asked, policy.param_kind, spec.get("paramRef"))
    except ConfigurationError as error:
        if policy.fails:
            yield f"failed to configure binding: {error}", "Invalid", True
        return
    for params in parameters:
        yield from _evaluate(policy, {**bindings, "params": params})


def _evaluate(policy: _Policy, bindings: Value) -> Iterator[tuple[str, str, bool]]:
    purse = _Purse(CONDITIONS_BUDGET)
    failures: list[str] = []
    try:
        for text, program in policy.conditions:
            try:
                if purse.value(program, bindings, text) is not True:
                    return
            except CelError as error:
                failures.append(str(error))
        if failures:
            if policy.fails:
                yield failures[0] if len(failures) == 1 else f"[{', '.join(failures)}]", "Invalid", False
            return
        purse = _Purse(BUDGET)
        here = {**bindings, "variables": _Variables(policy.variables, bindings, purse)}
        yield from _validated(policy, here, purse)
    except OutOfBudgetError:
        if policy.fails:
            yield OUT_OF_BUDGET, "Invalid", False
        return
    for text, program in policy.annotations:
        try:
            purse.value(program, here, text)
        except (CelError, OutOfBudgetError) as error:
            if policy.fails:
                yield str(error), "Invalid", True


def _validated(policy: _Policy, here: Value, purse: _Purse) -> Iterator[tuple[str, str, bool]]:
    found: list[tuple[_Validation, str | None]] = []
    for one in policy.validations:
        try:
            if purse.value(one.program, here, one.text) is not True:
                found.append((one, None))
        except CelError as error:
            if policy.fails:
                found.append((one, str(error)))
    for one, failure in found:
        yield (failure, "Invalid", False) if failure is not None else (_message(one, here, purse), one.reason, False)


class _Purse:
    """The cost that one evaluation of a policy may have, spent by all its expressions."""

    __slots__ = ("left",)

    def __init__(self, budget: int) -> None:
        self.left = budget

    def value(self, program: Compiled, bindings: Value, text: str) -> Any:
        """The value of an expression. Raises `CelError` in the words of policies, `OutOfBudgetError`."""
        if isinstance(program, CelError):
            raise CelError(f"compilation error: {program}", program.kind)
        try:
            return self.evaluated(program, bindings)
        except CelError as error:
            raise CelError(f"expression '{text}' resulted in error: {error}", error.kind) from None

    def evaluated(self, program: Program, bindings: Value) -> Any:
        """The same for one that compiled, in its own words."""
        try:
            evaluation = program.evaluate(bindings, cost_limit=CALL_LIMIT)
        except CelError as error:
            self._spend(error.cost)
            raise
        self._spend(evaluation.cost)
        return evaluation.value

    def _spend(self, cost: int) -> None:
        self.left -= cost
        if self.left < 0:
            raise OutOfBudgetError(OUT_OF_BUDGET)


class _Variables(dict[str, Any]):
    """`variables`: each is computed when it is asked for, and once. One that fails is a failure for who asks."""

    __slots__ = ("_bindings", "_programs", "_purse", "flat")

    def __init__(self, programs: dict[str, Compiled], bindings: Value, purse: _Purse) -> None:
        super().__init__()
        self._programs = programs
        self._bindings = {**bindings, "variables": self}
        self._purse = purse
        self.flat: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        if key not in self:
            program = self._programs.get(key)
            if program is None:
                return default
            self[key] = self._computed(key, program)
        return self[key]

    def _computed(self, name: str, program: Compiled) -> Any:
        why = f'composited variable "{name}" fails to '
        if isinstance(program, CelError):
            return Failure(f"{why}compile: {program}")
        try:
            return self._purse.evaluated(program, self._bindings)
        except CelError as error:
            return Failure(f"{why}evaluate: {error}")


def _message(one: _Validation, bindings: Value, purse: _Purse) -> str:
    """The expression's message if it gives a proper one, else the written one, else the expression itself."""
    if one.message_program is not None:
        try:
            text = purse.value(one.message_program, bindings, "")
        except CelError:
            text = None
        if told := proper_message(text):
            return told
    return one.message.strip() or f"failed expression: {one.text.strip()}"


# --- what policies and bindings there are ---------------------------------------------------------------------------


def _of(server: ApiServer) -> list[tuple[_Policy, list[Value]]]:
    policies, bindings = server.store.collection(POLICIES), server.store.collection(BINDINGS)
    version = policies.last_change, bindings.last_change
    known = _present.setdefault(server, _Present())
    if known.version != version:
        by_policy: dict[str, list[Value]] = {}
        for stored in bindings.objects():
            name = (stored.value.get("spec") or {}).get("policyName", "")
            by_policy.setdefault(name, []).append(stored.value)
        known.bound = [
            (_compiled_policy(stored.value), by_policy[stored.key])
            for stored in policies.objects()
            if stored.key in by_policy
        ]
        known.version = version
    return known.bound


def _compiled_policy(policy: Value) -> _Policy:
    spec = policy.get("spec") or {}
    params = bool(spec.get("paramKind"))
    compiler = Compiler(spec, (authorizing.LIBRARY,))
    conditions = Declared(params=params, authorizer=True)
    return _Policy(
        policy["metadata"]["name"],
        spec.get("failurePolicy", "Fail") != "Ignore",
        spec.get("matchConstraints") or {},
        spec.get("paramKind"),
        [
            (one["expression"], compiled(one["expression"], conditions, (types.BOOL,), (authorizing.LIBRARY,)))
            for one in spec.get("matchConditions") or ()
        ],
        {one["name"]: compiler.variable(one["name"], one["expression"]) for one in spec.get("variables") or ()},
        [
            _Validation(
                compiler.compiled(one["expression"], types.BOOL),
                one["expression"],
                one.get("message", ""),
                compiler.compiled(one["messageExpression"], types.STRING) if one.get("messageExpression") else None,
                one.get("reason") or "Invalid",
            )
            for one in spec.get("validations") or ()
        ],
        [
            (one["valueExpression"], compiler.compiled(one["valueExpression"], types.STRING, types.NULL))
            for one in spec.get("auditAnnotations") or ()
        ],
    )


def _namespace(asked: Asked) -> Value | None:
    """The namespace of the request as expressions see it; None for what is in none, and for namespaces themselves."""
    if not asked.row.namespaced:
        return None
    stored = asked.call.server.store.collection("namespaces").get(asked.namespace)
    if stored is None:
        return None
    metadata = {name: part for name, part in stored.value["metadata"].items() if name not in _HIDDEN}
    return {"metadata": metadata, **{name: stored.value[name] for name in ("spec", "status") if name in stored.value}}


_HIDDEN: Final = ("managedFields", "ownerReferences", "selfLink")


def _row_of(asked: Asked, kind: Mapping[str, Any]) -> ApiResource | None:
    group, _, version = str(kind.get("apiVersion", "")).rpartition("/")
    wanted = group, version, kind.get("kind")
    rows = asked.call.server.registry.rows()
    return next((one for one in rows if (one.group, one.version, one.kind) == wanted), None)


def _unknown_parameters(asked: Asked, policy: _Policy) -> str:
    """Why the policy's kind of parameters cannot be used, "" if it can."""
    kind = policy.param_kind
    if kind is None or _row_of(asked, kind) is not None:
        return ""
    return f"failed to find resource referenced by paramKind: '{kind.get('apiVersion')}, Kind={kind.get('kind')}'"


def _parameters(
    asked: Asked, kind: Mapping[str, Any] | None, reference: Mapping[str, Any] | None
) -> list[Value | None]:
    """The parameter objects that a binding names or selects; one None where none are wanted. Raises
    `ConfigurationError`."""
    if kind is None or not reference:
        return [None]
    row = _row_of(asked, kind)
    if row is None:
        return []
    namespace = str(reference.get("namespace") or "")
    if not row.namespaced and namespace:
        raise ConfigurationError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    namespace = namespace or asked.namespace
    if row.namespaced and not namespace:
        raise ConfigurationError(
            "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
        )
    found = _chosen(asked, row, namespace, reference)
    if not found and reference.get("parameterNotFoundAction") == "Deny":
        raise ConfigurationError("no params found for policy binding with `Deny` parameterNotFoundAction")
    return [to_served(row, one) for one in found]


def _chosen(asked: Asked, row: ApiResource, namespace: str, reference: Mapping[str, Any]) -> list[Value]:
    collection = asked.call.server.store.collection(row.collection)
    if reference.get("name"):
        stored = collection.get(key_of(row, namespace, str(reference["name"])))
        return [stored.value] if stored is not None else []
    selector = LabelSelector.from_object(reference.get("selector") or {})
    found = collection.objects(f"{namespace}/" if row.namespaced and namespace else "")
    return [one.value for one in found if selector.matches(one.value["metadata"].get("labels") or {})]
