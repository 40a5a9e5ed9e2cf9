"""Which devices a request may get, as bit sets cached by content.

A selector is evaluated once per distinct content of what it reads: if every use of `device` names a fixed attribute,
two devices that agree in those attributes share the answer, so nodes with equal hardware share all work. Evaluation
order, short-circuits and error texts are upstream's: class selectors, then request selectors, then the device's own
node selection (KEP-4381, KEP-4815); a device behind a false selector is never evaluated further.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from drakkar.allocation.capacity import Amounts, CapacityProblem, amounts_for
from drakkar.allocation.contents import columns, harmless, plainly_readable
from drakkar.allocation.errors import AllocationError
from drakkar.allocation.features import Features
from drakkar.allocation.pools import NodeView, PoolBody, device_is_for
from drakkar.allocation.reads import Read, reads_of
from drakkar.allocation.requests import Ask
from drakkar.allocation.slices import Device, SliceRecord
from drakkar.allocation.taints import untolerated
from drakkar.cel import CelError, DeviceValue, Environment, device_environment

COMPILE: Final = "CEL compile error"
RUNTIME: Final = "CEL runtime error"
_HINT: Final = (
    ". consider using CEL optional chaining (.? followed by orValue()) "
    "or guarding the check with has() for optional fields"
)
_MEMO_LIMIT: Final = 100_000
_BITS_LIMIT: Final = 256

_encode = msgspec.json.encode

Deadline = Callable[[], bool] | None
"""Answers whether time is up."""


class Failure(NamedTuple):
    """An error that ends the scheduling attempt when the search comes to a device."""

    kind: str  # what goes before the text: see `message`
    text: str
    device: Device | None = None

    def message(self, claim: str, ask: Ask) -> str:
        """The full text, for a claim named ns/name."""
        if self.kind == "class":
            return f"class {ask.class_record.name}: {self.text}"
        if self.kind == "claim":
            return f"claim {claim}: {self.text}"
        if self.kind == "capacity" and self.device is not None:
            # Upstream names the device in full in the search but barely when it lists the devices of mode All.
            where = self.device.name if ask.all_devices else str(self.device.key)
            return f"claim {claim}, request {ask.own}: checking capacity for device {where}: {self.text}"
        return self.text


class Fit(NamedTuple):
    """The devices of one request, numbered as in the pool or view it was made for."""

    ok: int  # can be allocated as far as content goes
    failing: int  # the search stops with an error when it comes to them
    blocked: int  # selected, but never given out: untolerated taint, operations the node does not know
    failures: Mapping[int, Failure]
    checked: int  # the capacity has to be compared with what is left

    @property
    def selected(self) -> int:
        """What mode All collects."""
        return self.ok | self.blocked


class Selector:
    """One CEL expression with its answers by content."""

    __slots__ = ("_memo", "problem", "program", "reads", "text")

    def __init__(self, text: str, environment: Environment) -> None:
        self.text = text
        self.program: Any = None
        self.problem = ""
        self.reads: tuple[Read, ...] | None = None
        self._memo: dict[Any, bool | str] = {}
        try:
            self.program = environment.compile(text)
        except CelError as error:
            self.problem = error.message
            return
        self.reads = reads_of(self.program.root)

    def answer(self, device: Device, deadline: Deadline) -> bool | str:
        """True, False or the text of a runtime error."""
        key = content_of(device) if self.reads is None else _projection(device, self.reads)
        found = self._memo.get(key)
        if found is None:
            found = evaluate(self.program, device, deadline)
            if len(self._memo) >= _MEMO_LIMIT:
                self._memo.clear()
            self._memo[key] = found
        return found


def evaluate(program: Any, device: Device, deadline: Deadline) -> bool | str:
    """One selector on one device: its truth, or the text of the runtime error."""
    try:
        answer: bool = program.evaluate({"device": value_of(device)}, deadline=deadline).value
    except CelError as error:
        if deadline is not None and deadline():
            raise AllocationError(
                f"filter operation aborted: context deadline exceeded: selector {program.text!r} on device "
                f"{device.key}: {error.message}",
                reason="Timeout",
                subject=str(device.key),
                timed_out=True,
            ) from error
        return error.message + _HINT if error.message.startswith("no such key: ") else error.message
    return answer


def value_of(device: Device) -> DeviceValue:
    """What CEL sees as `device`."""
    if device.value is None:
        device.value = DeviceValue.from_json(device.key.driver, device.raw)
    value: DeviceValue = device.value
    return value


def content_of(device: Device) -> bytes:
    """A hashable form of everything that CEL can see of a device."""
    if device.content is None:
        raw = device.raw
        seen = [device.key.driver, raw.get("attributes"), raw.get("capacity"), device.shareable]
        device.content = _encode(seen)
    content: bytes = device.content
    return content


def _projection(device: Device, reads: tuple[Read, ...]) -> tuple[Any, ...]:
    raw, driver = device.raw, device.key.driver
    seen: list[Any] = [driver]
    for field, domain, name in reads:
        if field == "allowMultipleAllocations":
            seen.append(device.shareable)
        elif field != "driver":
            values = raw.get(field) or {}
            seen.append(_frozen(values.get(f"{domain}/{name}")))
            if domain == driver:
                seen.append(_frozen(values.get(name)))
    if not device.slice.simple and not sound(device):
        seen.append(content_of(device))
    return tuple(seen)


def _frozen(value: Any) -> Any:
    if not value:
        return value if value is None else ()
    for kind, content in value.items():
        if len(value) == 1 and not isinstance(content, list | dict):
            return (kind, content, type(content))
    return _encode(value)


def sound(device: Device) -> bool:
    """Whether all that CEL sees can be read; if not, every selector fails on the device."""
    return plainly_readable(device.raw) or not value_of(device).problem


class Answers(NamedTuple):
    """What selection looks up and remembers for one set of features."""

    selector: Callable[[str], Selector]
    fits: dict[Any, Fit]  # of simple slices, by what is asked and what they contain
    features: Features


def reads_of_ask(ask: Ask, answers: Answers) -> frozenset[Read] | None:
    """Everything that decides about simple devices for a request, or None if that cannot be told."""
    if ask.capacity:
        return None
    found: set[Read] = set()
    for texts in ask.query:
        for text in texts:
            reads = answers.selector(text).reads
            if reads is None:
                return None
            found.update(reads)
    return frozenset(found)


def fit_of_body(body: PoolBody, ask: Ask, answers: Answers, deadline: Deadline) -> Fit:
    """The devices of a pool for a request, as far as the node does not matter."""
    found: Fit | None = body.bits.get(ask.key)
    if found is not None:
        return found
    reads = reads_of_ask(ask, answers)
    if len(body.slices) == 1:
        found = _fit_of_slice(body.slices[0], ask, reads, answers, deadline)
    else:
        offset = ok = failing = blocked = checked = 0
        failures: dict[int, Failure] = {}
        for record in body.slices:
            part = _fit_of_slice(record, ask, reads, answers, deadline)
            ok |= part.ok << offset
            failing |= part.failing << offset
            blocked |= part.blocked << offset
            checked |= part.checked << offset
            for number, failure in part.failures.items():
                failures[number + offset] = failure
            offset += len(record.names)
        found = Fit(ok, failing, blocked, failures, checked)
    remember(body.bits, ask.key, found)
    return found


def remember(known: dict[Any, Any], key: Any, value: Any) -> None:
    """Keep a value that can be worked out again, but not without end."""
    if len(known) >= _BITS_LIMIT:
        known.clear()
    known[key] = value


def _fit_of_slice(
    record: SliceRecord, ask: Ask, reads: frozenset[Read] | None, answers: Answers, deadline: Deadline
) -> Fit:
    ordinary = record.simple and (not record.consuming or answers.features.partitionable_devices)
    if reads is None or not ordinary or not record.names:
        return _fit(record.all_devices(), ask, answers.selector, features=answers.features, deadline=deadline)
    if not ask.query.of_class and not ask.query.of_request:
        return Fit((1 << len(record.names)) - 1, 0, 0, {}, 0)
    key = (ask.key, columns(record.key.driver, record.raw_devices, sorted(reads)))
    found = answers.fits.get(key)
    if found is None:
        found = _fit_of_simple(record.all_devices(), _chain(ask, answers.selector), deadline)
        if not found.failures:  # those name their device
            if len(answers.fits) >= _MEMO_LIMIT:
                answers.fits.clear()
            answers.fits[key] = found
    return found


def _chain(ask: Ask, selector: Callable[[str], Selector]) -> list[tuple[Selector, bool, int]]:
    """The selectors in order, each with whether it is the class's and its number there."""
    return [
        (selector(text), stage == 0, number)
        for stage, texts in enumerate(ask.query)
        for number, text in enumerate(texts)
    ]


def _fit_of_simple(devices: list[Device], chain: list[tuple[Selector, bool, int]], deadline: Deadline) -> Fit:
    """As `_fit`, where nothing but selectors decides."""
    ok = failing = 0
    failures: dict[int, Failure] = {}
    for number, device in enumerate(devices):
        failure = _first_failure(device, chain, deadline)
        if failure is None:
            ok |= 1 << number
        elif not isinstance(failure, bool):
            failing |= 1 << number
            failures[number] = failure
    return Fit(ok, failing, 0, failures, 0)


def _fit(
    devices: list[Device], ask: Ask, selector: Callable[[str], Selector], *, features: Features, deadline: Deadline
) -> Fit:
    chain = _chain(ask, selector)
    ok = blocked = failing = checked = 0
    failures: dict[int, Failure] = {}
    for number, device in enumerate(devices):
        raw = device.raw
        if not features.device_binding_and_status and raw.get("bindingConditions"):
            continue
        failure = _first_failure(device, chain, deadline)
        if isinstance(failure, bool):
            continue
        if failure is None and features.consumable_capacity:
            amounts = amounts_of(device, ask, features)
            if isinstance(amounts, Failure):
                failure = amounts
            elif amounts is not None:
                if amounts.refusal is not None or not amounts.fits():
                    continue
                checked |= 1 << number
        if failure is not None:
            failing |= 1 << number
            failures[number] = failure
        elif _blocked(device, ask, features):
            blocked |= 1 << number
        else:
            ok |= 1 << number
    return Fit(ok, failing, blocked, failures, checked)


def _first_failure(
    device: Device, chain: list[tuple[Selector, bool, int]], deadline: Deadline
) -> Failure | bool | None:
    """None: selected; False: not selected; else the error."""
    for selector, by_class, number in chain:
        if selector.problem:
            text = f"selector #{number}: {COMPILE}: {selector.problem}"
            return Failure("class" if by_class else "claim", text)
        answer = selector.answer(device, deadline)
        if answer is False:
            return False
        if answer is not True:
            text = f"selector #{number} on device {device.key}: {RUNTIME}: {answer}"
            return Failure("class" if by_class else "claim", text, device)
    return None


def _blocked(device: Device, ask: Ask, features: Features) -> bool:
    raw = device.raw
    if raw.get("taints") and features.device_taints and untolerated(raw["taints"], ask.tolerations):
        return True
    return bool(not features.partitionable_devices and raw.get("consumesCounters"))


def amounts_of(device: Device, ask: Ask, features: Features, *, always: bool = False) -> Amounts | Failure | None:
    """What the request takes of the device's capacity; None (unless `always`) if nothing of it could matter."""
    capacity = device.raw.get("capacity") or {}
    if not always and not ask.capacity and not device.shareable and harmless(capacity):
        return None
    try:
        return amounts_for(capacity, ask.capacity, features)
    except CapacityProblem as problem:
        return Failure("capacity", str(problem), device)


def fit_of_view(view: NodeView, ask: Ask, answers: Answers, deadline: Deadline) -> Fit:
    """The devices of a node for a request."""
    found: Fit | None = view.bits.get(ask.key)
    if found is not None:
        return found
    ok = failing = blocked = checked = 0
    failures: dict[int, Failure] = {}
    for body, offset in view.parts:
        fit = _for_this_node(body, fit_of_body(body, ask, answers, deadline), view, answers.features)
        ok |= fit.ok << offset
        failing |= fit.failing << offset
        blocked |= fit.blocked << offset
        checked |= fit.checked << offset
        for number, failure in fit.failures.items():
            failures[number + offset] = failure
    found = Fit(ok, failing, blocked, failures, checked)
    remember(view.bits, ask.key, found)
    return found


def _for_this_node(body: PoolBody, fit: Fit, view: NodeView, features: Features) -> Fit:
    """Take out the devices that are for other nodes, or that need operations this node cannot leave out."""
    if not any(record.per_device or record.skip_operations for record in body.slices):
        return fit
    ok, failing, blocked, failures = fit.ok, fit.failing, fit.blocked, dict(fit.failures)
    for number, device in enumerate(body.devices):
        bit = 1 << number
        owner = device.slice
        if owner.per_device and (ok | blocked | failing) & bit and not _cel_failed(failures.get(number)):
            try:
                mine = device_is_for(device.raw, view.node)
            except AllocationError as error:
                failures[number] = Failure("plain", error.message, device)
                failing |= bit
                ok &= ~bit
                blocked &= ~bit
                continue
            if not mine:
                ok &= ~bit
                blocked &= ~bit
                failing &= ~bit
                failures.pop(number, None)
        if ok & bit and not operations_known(device, view, features):
            ok &= ~bit
            blocked |= bit
    return Fit(ok, failing, blocked, failures, fit.checked)


def operations_known(device: Device, view: NodeView, features: Features) -> bool:
    """Whether the node can do what the device wants left out (KEP-5945); the default variant does not look."""
    if not device.slice.skip_operations or not features.experimental:
        return True
    return features.optional_node_operations and "DRAOptionalNodeOperations" in view.capable


def _cel_failed(failure: Failure | None) -> bool:
    return failure is not None and failure.kind != "capacity"


def environment_of(features: Features) -> Environment:
    """The CEL environment in which a scheduler with these features evaluates stored expressions."""
    return device_environment(
        mode="stored",
        consumable_capacity=features.consumable_capacity,
        list_attributes=features.list_type_attributes,
    )
