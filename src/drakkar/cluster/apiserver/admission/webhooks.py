"""Admission webhooks: who is asked, in which order, and what their answers do to a request.

Mutating webhooks are asked one after the other, in the order of the names of their configurations; what one changes the
next sees. If anything was changed, the server's own mutators run once more, and with them those webhooks that asked for
it (`reinvocationPolicy`). Validating webhooks are asked all at once. Source: admissionregistration.k8s.io/v1 and
`k8s.io/apiserver/pkg/admission/plugin/webhook`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from drakkar.api.fields import quote
from drakkar.cel import CelError, Program, types
from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.admission import authorizing, matching, reviewing
from drakkar.cluster.apiserver.admission.asked import GROUP, Asked, Value, request_of
from drakkar.cluster.apiserver.admission.reviewing import CallFailure
from drakkar.cluster.apiserver.conversions import from_served
from drakkar.cluster.apiserver.kinds import behaviour, stored_behaviour
from drakkar.cluster.apiserver.resources import ApiResource
from drakkar.cluster.machinery.advice import UNASKED
from drakkar.cluster.machinery.expressions import CONDITIONS_BUDGET, Declared, compiled
from drakkar.cluster.machinery.strictness import DecodeError
from drakkar.kube.simulated import hold

if TYPE_CHECKING:
    from drakkar.cluster.apiserver.admission.callouts import Callouts
    from drakkar.cluster.store import Collection

__all__ = ["Webhooks"]

_CONFIGURATION_KINDS: Final = frozenset(
    f"{kind}{part}"
    for kind in ("Validating", "Mutating")
    for part in ("WebhookConfiguration", "AdmissionPolicy", "AdmissionPolicyBinding")
)
_WITHOUT_EFFECTS: Final = ("None", "NoneOnDryRun")
_CONDITIONS: Final = Declared(authorizer=True)


class Webhook(msgspec.Struct):
    """One webhook of one configuration. `conditions` are its match conditions, compiled."""

    identity: str
    name: str
    spec: Value
    conditions: list[tuple[str, Program | CelError]]

    @property
    def ignores_failures(self) -> bool:
        return self.spec.get("failurePolicy") == "Ignore"


class Webhooks:
    """The webhooks of one server; `collection` has the configurations of one of both kinds."""

    def __init__(self, collection: Collection, callouts: Callouts) -> None:
        self._collection = collection
        self._callouts = callouts
        self._known: list[Webhook] = []
        self._version = -1

    def _present(self) -> list[Webhook]:
        """All webhooks, in the order in which they are asked; compiled once per change of a configuration."""
        if self._version != self._collection.last_change:
            before = {one.identity: one for one in self._known}
            self._known = []
            for stored in self._collection.objects():
                for index, spec in enumerate(stored.value.get("webhooks") or ()):
                    identity = f"{stored.key}/{spec.get('name', '')}/{index}"
                    known = before.get(identity)
                    if known is None or known.spec != spec:
                        known = Webhook(identity, str(spec.get("name", "")), spec, _conditions(spec))
                    self._known.append(known)
            self._version = self._collection.last_change
        return self._known

    def concern(self, asked: Asked) -> bool:
        """Whether any webhook may be asked about such a request at all."""
        row = asked.row
        if row.group == GROUP and row.kind in _CONFIGURATION_KINDS:
            return False
        return (row.group, row.plural) not in UNASKED and bool(self._present())

    # --- mutating -----------------------------------------------------------------------------------------------------

    async def mutate(self, asked: Asked, again: Callable[[Value], Value]) -> Value | None:
        """The object after all webhooks; `again` runs the server's own mutators. Raises `StatusError`."""
        if not self.concern(asked):
            return asked.obj
        repeat: set[str] = set()
        previous: set[str] = set()
        changed_any = False
        for round_ in (0, 1):
            for webhook in self._present():
                row = _wanted(webhook, asked)
                if row is None or (round_ and webhook.identity not in repeat):
                    continue
                changed = await self._change(webhook, asked, row)
                if changed:
                    changed_any = True
                    repeat |= previous
                    previous.clear()
                if webhook.spec.get("reinvocationPolicy") == "IfNeeded":
                    previous.add(webhook.identity)
            if round_ or not changed_any or asked.obj is None:
                break
            before = asked.obj
            asked.obj = again(before)
            if asked.obj != before:
                repeat |= previous
                previous.clear()
        return asked.obj

    async def _change(self, webhook: Webhook, asked: Asked, row: ApiResource) -> bool:
        """Ask one webhook and apply its patch to `asked.obj`; whether that changed anything. Raises `StatusError`."""
        try:
            response = await self._ask(webhook, asked, row, mutating=True)
            if response is None or not response.patch:
                return False
            operations = _operations(response)
        except CallFailure as failure:
            _failed(webhook, failure)
            return False
        if not operations:
            return False
        if asked.obj is None:
            raise statuses.internal_error(
                f"admission webhook {quote(webhook.name)} attempted to modify the object, which is not supported for"
                " this operation"
            )
        before = asked.obj
        asked.obj = _patched(asked, row, operations)
        return asked.obj != before

    # --- validating ---------------------------------------------------------------------------------------------------

    async def validate(self, asked: Asked) -> None:
        """Ask all webhooks that want to know at once; raises the `StatusError` of the first that refuses."""
        if not self.concern(asked):
            return
        concerned = [(webhook, row) for webhook in self._present() if (row := _wanted(webhook, asked)) is not None]
        if len(concerned) == 1:
            await self._judge(*concerned[0], asked)
            return
        tasks = [asyncio.ensure_future(self._judge(webhook, row, asked)) for webhook, row in concerned]
        try:
            refusals = [refusal for refusal in await asyncio.gather(*tasks, return_exceptions=True) if refusal]
        finally:
            for task in tasks:
                task.cancel()
        if refusals:
            raise refusals[0]

    async def _judge(self, webhook: Webhook, row: ApiResource, asked: Asked) -> None:
        try:
            await self._ask(webhook, asked, row, mutating=False)
        except CallFailure as failure:
            _failed(webhook, failure)

    # --- both ---------------------------------------------------------------------------------------------------------

    async def _ask(
        self, webhook: Webhook, asked: Asked, row: ApiResource, *, mutating: bool
    ) -> reviewing.Response | None:
        """The webhook's answer. Raises `StatusError` for a denial, `CallFailure` if there was no proper answer."""
        spec = webhook.spec
        if asked.call.dry_run and spec.get("sideEffects") not in _WITHOUT_EFFECTS:
            raise statuses.bad_request(f"admission webhook {quote(webhook.name)} does not support dry run")
        version, uid = reviewing.version_for(spec), str(uuid.uuid4())
        review = reviewing.review(asked, row, version, uid, *_shown(asked, row))
        with hold(asked.call.server.clock):  # simulated time does not run away from whoever is asked
            body = await self._callouts.ask(
                spec.get("clientConfig") or {}, review, float(spec.get("timeoutSeconds") or 10)
            )
        response = reviewing.read_response(body, version, uid, mutating=mutating)
        asked.call.warnings += [text for text in response.warnings if text not in asked.call.warnings]
        if not response.allowed:
            raise reviewing.denial(webhook.name, response.status)
        return response


def _failed(webhook: Webhook, failure: CallFailure) -> None:
    """What the failure policy makes of a webhook that could not be asked; raises `StatusError` unless it is Ignore."""
    if not webhook.ignores_failures:
        raise statuses.internal_error(f"failed calling webhook {quote(webhook.name)}: {failure}") from None


def _shown(asked: Asked, row: ApiResource) -> tuple[Value | None, Value | None]:
    obj, old = asked.objects(row)
    if obj is not None and asked.new:
        metadata = {name: part for name, part in (obj.get("metadata") or {}).items() if name not in _GIVEN}
        if not asked.object_name:
            metadata.pop("name", None)
        obj = {**obj, "metadata": metadata}
    return obj, old


_GIVEN: Final = ("uid", "creationTimestamp")
"""What the server gives an object after mutating admission."""


def _wanted(webhook: Webhook, asked: Asked) -> ApiResource | None:
    """The version in which the webhook wants to be asked about the request, None if it does not. Raises
    `StatusError` 403 if its conditions cannot be evaluated."""
    row = matching.matched(asked, webhook.spec)
    if row is None or not webhook.conditions:
        return row
    obj, old = _shown(asked, row)
    variables = {
        "object": obj,
        "oldObject": old,
        "namespaceObject": None,
        "request": {**request_of(asked, row), "options": asked.given_options()},
        **authorizing.bindings(asked),
    }
    problems = []
    for result in _evaluated(webhook.conditions, variables):
        if isinstance(result, str):
            problems.append(result)
        elif not result:
            return None
    if not problems:
        return row
    if webhook.ignores_failures:
        return None
    why = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
    own = asked.row
    raise statuses.forbidden(own.group, own.plural, asked.object_name, why)


def _evaluated(conditions: list[tuple[str, Program | CelError]], variables: Value) -> Iterator[bool | str]:
    """Each condition's value, or what is told of its failure."""
    left = CONDITIONS_BUDGET
    for text, program in conditions:
        try:
            if isinstance(program, CelError):
                raise program
            evaluation = program.evaluate(variables, cost_limit=left)
            left -= evaluation.cost
            yield evaluation.value is True
        except CelError as error:
            left -= error.cost
            yield f"expression '{text}' resulted in error: {error}"


def _conditions(spec: Mapping[str, Any]) -> list[tuple[str, Program | CelError]]:
    found = []
    for one in spec.get("matchConditions") or ():
        text = str(one.get("expression", ""))
        found.append((text, compiled(text, _CONDITIONS, (types.BOOL,), (authorizing.LIBRARY,))))
    return found


def _operations(response: reviewing.Response) -> list[Any]:
    """The operations of a patch. Raises `CallFailure`."""
    try:
        operations = msgspec.json.decode(response.patch)
    except msgspec.DecodeError as error:
        raise CallFailure(f"received undecodable patch in webhook response: {error}") from None
    if not isinstance(operations, list):
        wanted = "jsonpatch.Patch"
        given = "object" if isinstance(operations, dict) else type(operations).__name__
        raise CallFailure(
            f"received undecodable patch in webhook response: json: cannot unmarshal {given} into Go value of type"
            f" {wanted}"
        )
    if operations and response.patch_type != reviewing.JSON_PATCH:
        raise CallFailure(f"unsupported patch type {quote(response.patch_type)}")
    return operations


def _patched(asked: Asked, row: ApiResource, operations: list[Any]) -> Value:
    """The object with a patch of its form in `row`, shaped and defaulted again. Raises `StatusError` 500."""
    from drakkar.cluster.machinery.patching import PatchError, json_patch

    assert asked.obj is not None
    shown, _ = _shown(asked, row)
    try:
        changed = json_patch(shown, operations)
    except PatchError as error:
        raise statuses.internal_error(error.why) from None
    kind = behaviour(asked.kind_row(row))
    try:
        decoded = kind.shape(changed, "Ignore").object
    except DecodeError as error:
        about = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
        raise statuses.internal_error(str(error).removeprefix(about)) from None
    if asked.new:
        kept = {name: asked.obj["metadata"][name] for name in (*_GIVEN, "name") if name in asked.obj["metadata"]}
        decoded["metadata"] = {**kept, **decoded.get("metadata", {})}
    if asked.call.subresource is not None and asked.call.subresource.kind:
        return kind.default(decoded, now=asked.call.timestamp)
    stored = from_served(row, decoded)
    return stored_behaviour(row).default(stored, now=asked.call.timestamp)
