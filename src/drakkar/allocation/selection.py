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
from drakkar.allocation.contents import Row, harmless, rows
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

    __slots__ = ("_memo", "_rows", "problem", "program", "reads", "text")

    def __init__(self, text: str, environment: Environment) -> None:
        self.text = text
        self.program: Any = None
        self.problem = ""
        self.reads: tuple[Read, ...] | None = None
        self._memo: dict[bytes, bool | str] = {}
        self._rows: dict[str, dict[Row, bool | str]] = {}  # by driver
        try:
            self.program = environment.compile(text)
        except CelError as error:
            self.problem = error.message
            return
        self.reads = reads_of(self.program.root)

    def answers(self, record: SliceRecord, numbers: list[int], deadline: Deadline) -> list[bool | str]:
        """For these devices of a slice: true, false or the text of a runtime error."""
        if self.reads is None or not record.readable:
            return [self._answer(record.device(number), deadline) for number in numbers]
        driver = record.key.driver
        raw = record.raw_devices
        table = rows(driver, raw if len(numbers) == len(raw) else [raw[number] for number in numbers], self.reads)
        memo = self._rows.setdefault(driver, {})
        if len(memo) >= _MEMO_LIMIT:
            memo.clear()
        found = []
        for number, row in zip(numbers, table, strict=True):
            answer = memo.get(row)
            if answer is None:
                # All of the device can be read, so what is not asked for need not be made.
                value = DeviceValue.excerpt(driver, raw[number], self.reads)
                answer = memo[row] = evaluate(self.program, value, record, number, deadline)
            found.append(answer)
        return found

    def _answer(self, device: Device, deadline: Deadline) -> bool | str:
        key = content_of(device)
        found = self._memo.get(key)
        if found is None:
            found = evaluate(self.program, value_of(device), device.slice, device.number, deadline)
            if len(self._memo) >= _MEMO_LIMIT:
                self._memo.clear()
            self._memo[key] = found
        return found


def evaluate(program: Any, value: DeviceValue, record: SliceRecord, number: int, deadline: Deadline) -> bool | str:
    """One selector on one device of a slice: its truth, or the text of the runtime error."""
    try:
        answer: bool = program.evaluate({"device": value}, deadline=deadline).value
    except CelError as error:
        if deadline is not None and deadline():
            key = record.device(number).key
            raise AllocationError(
                f"filter operation aborted: context deadline exceeded: selector {program.text!r} on device "
                f"{key}: {error.message}",
                reason="Timeout",
                subject=str(key),
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


class Answers(NamedTuple):
    """What selection looks up and remembers for one set of features."""

    selector: Callable[[str], Selector]
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
        return _fit(record, ask, answers.selector, features=answers.features, deadline=deadline)
    if not ask.query.of_class and not ask.query.of_request:
        return Fit((1 << len(record.names)) - 1, 0, 0, {}, 0)
    ok, failures = selected(record, chain_of(ask, answers.selector), deadline)
    return Fit(ok, sum(1 << number for number in failures), 0, failures, 0)


def chain_of(ask: Ask, selector: Callable[[str], Selector]) -> list[tuple[Selector, bool, int]]:
    """The selectors in order, each with whether it is the class's and its number there."""
    return [
        (selector(text), stage == 0, number)
        for stage, texts in enumerate(ask.query)
        for number, text in enumerate(texts)
    ]


def selected(
    record: SliceRecord,
    chain: list[tuple[Selector, bool, int]],
    deadline: Deadline,
    numbers: list[int] | None = None,
) -> tuple[int, dict[int, Failure]]:
    """The devices that all selectors accept, and those on which the first that did not say no has failed.

    Of the whole slice, or of those devices (numbers in order) only.
    """
    alive = list(range(len(record.names))) if numbers is None else numbers
    failures: dict[int, Failure] = {}
    for selector, by_class, number in chain:
        if not alive:
            break
        kind = "class" if by_class else "claim"
        if selector.problem:
            failure = Failure(kind, f"selector #{number}: {COMPILE}: {selector.problem}")
            failures.update(dict.fromkeys(alive, failure))
            alive = []
            break
        whole = len(alive) == len(record.names)
        known = record.selected.get(selector) if whole else None
        if known is not None:
            alive = known
            continue
        found = selector.answers(record, alive, deadline)
        for place, answer in zip(alive, found, strict=True):
            if isinstance(answer, str):
                device = record.device(place)
                text = f"selector #{number} on device {device.key}: {RUNTIME}: {answer}"
                failures[place] = Failure(kind, text, device)
        alive = [place for place, answer in zip(alive, found, strict=True) if answer is True]
        if whole and not failures:
            remember(record.selected, selector, alive)
    ok = 0
    for place in alive:
        ok |= 1 << place
    return ok, failures


def _fit(
    record: SliceRecord, ask: Ask, selector: Callable[[str], Selector], *, features: Features, deadline: Deadline
) -> Fit:
    chosen, failures = selected(record, chain_of(ask, selector), deadline)
    ok = blocked = failing = checked = 0
    known: dict[bytes, Amounts | Failure | None] = {}
    for number, raw in enumerate(record.raw_devices):
        bit = 1 << number
        failure = failures.get(number)
        if not chosen & bit and failure is None:
            continue
        if not features.device_binding_and_status and raw.get("bindingConditions"):
            failures.pop(number, None)
            continue
        if failure is None and features.consumable_capacity:
            amounts = _amounts_of(record, number, ask, features, known)
            if isinstance(amounts, Failure):
                failure = failures[number] = amounts
            elif amounts is not None:
                if amounts.refusal is not None or not amounts.fits():
                    continue
                checked |= bit
        if failure is not None:
            failing |= bit
        elif _blocked(raw, ask, features):
            blocked |= bit
        else:
            ok |= bit
    return Fit(ok, failing, blocked, failures, checked)


def _amounts_of(
    record: SliceRecord, number: int, ask: Ask, features: Features, known: dict[bytes, Amounts | Failure | None]
) -> Amounts | Failure | None:
    """`amounts_of`, once for devices of equal capacity."""
    raw = record.raw_devices[number]
    key = _encode((raw.get("capacity"), raw.get("allowMultipleAllocations")))
    if key not in known:
        found = amounts_of(record.device(number), ask, features)
        if isinstance(found, Failure):
            return found  # names its device
        known[key] = found
    return known[key]


def _blocked(raw: Mapping[str, Any], ask: Ask, features: Features) -> bool:
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
