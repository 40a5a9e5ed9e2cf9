"""Paths: a variable (or another value) and the fields, keys and indexes selected from it.

Each selection costs 1, also the failing one, and the path itself 1 more; inside a ternary branch or as an index a path
pays only for its selections. After an optional selection (`.?f`, `[?k]`) absence yields optional.none() instead of an
error. The paths of device selectors, `device.attributes["domain"].id`, are one lookup in the device's flat table.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from drakkar.cel.device import ATTRIBUTE_PREFIX, CAPACITY_PREFIX, Domains, Names
from drakkar.cel.sizes import MOST
from drakkar.cel.steps import Body, Frame, LimitReached, Step
from drakkar.cel.values import INT_MAX, KEY_TYPES, NO_SUCH_OVERLOAD, NONE, Failure, Optional, UInt, go_name, key_in

_MISSING: Final = object()
_FLAT: Final = {"attributes": ATTRIBUTE_PREFIX, "capacity": CAPACITY_PREFIX}
_FLAT_SEPARATOR: Final = "\0"
_PLAIN_FIELDS: Final = frozenset(("driver", "allowMultipleAllocations"))


class Qualifier:
    """One selection: a constant key, or a closure that computes it."""

    __slots__ = ("compute", "key", "optional")

    def __init__(self, key: Any, compute: Body | None, optional: bool) -> None:
        self.key = key
        self.compute = compute
        self.optional = optional


class DeviceDomain(NamedTuple):
    """`device.attributes["domain"]`: the slot of the device's flat table, and what its keys there begin with."""

    slot: int
    prefix: str


class Path:
    """Where a path begins and what is selected.

    `root` yields the first value and pays for it; `own` is what the path as a whole costs (0 for a ternary, whose
    cost is its parts'). `slot` is the frame slot if the root is a variable, `device_slot` that of the device's flat
    table if it is a device. `domain` is set if the root is a name for one domain of a device.
    """

    __slots__ = ("device_slot", "domain", "own", "qualifiers", "root", "slot")

    def __init__(
        self,
        root: Body,
        own: int,
        qualifiers: tuple[Qualifier, ...] = (),
        slot: int = 0,
        device_slot: int = 0,
        domain: DeviceDomain | None = None,
    ) -> None:
        self.root = root
        self.own = own
        self.qualifiers = qualifiers
        self.slot = slot
        self.device_slot = device_slot
        self.domain = domain

    def extended(self, qualifier: Qualifier) -> Path:
        """The path with one more selection."""
        return Path(self.root, self.own, (*self.qualifiers, qualifier), self.slot, self.device_slot, self.domain)

    def step(self, precise: bool) -> Step:
        """The path as a value of its own."""
        if not precise:
            short = self._short()
            if short is not None:
                return short
        body = self.resolve(precise)
        if precise and self.own:
            return Step(0, _precise(body), path=self)
        return Step(self.own, body, path=self)

    def resolve(self, precise: bool) -> Body:
        """The path inside a ternary branch or an index: without its own unit."""
        if not self.qualifiers:
            return self.root
        if not precise:
            short = self._short()
            if short is not None:
                return _paid(short.body, short.fixed - self.own)
        return _walk(self.root, self.qualifiers, precise)

    def _short(self) -> Step | None:
        """A faster way for the usual paths."""
        if not self.qualifiers:
            return None
        return self._flat() or self._domain() or self._computed_domain() or self._texts()

    def _field_and_domain(self) -> tuple[str, str] | None:
        """What `device.attributes["domain"]` names."""
        qualifiers = self.qualifiers
        if not self.device_slot or len(qualifiers) != 2 or any(q.optional or q.compute for q in qualifiers):
            return None
        field, domain = (qualifier.key for qualifier in qualifiers)
        return (field, domain) if field in _FLAT and type(domain) is str else None

    def as_domain(self) -> DeviceDomain | None:
        """The domain of a device that the path as a whole is."""
        named = self._field_and_domain()
        if named is None or _FLAT_SEPARATOR in named[1]:
            return None
        return DeviceDomain(self.device_slot, f"{_FLAT[named[0]]}{named[1]}{_FLAT_SEPARATOR}")

    def _domain(self) -> Step | None:
        """`device.attributes["domain"]`."""
        named = self._field_and_domain()
        if named is None:
            return None
        field, domain = named
        slot = self.slot

        def body(frame: Frame) -> Any:
            return frame[slot][field].get(domain, _EMPTY)

        return Step(3, body, path=self)

    def _computed_domain(self) -> Step | None:
        """`device.attributes[expression].id`."""
        qualifiers = self.qualifiers
        if not self.device_slot or len(qualifiers) != 3 or any(qualifier.optional for qualifier in qualifiers):
            return None
        field, domain, last = qualifiers
        compute, name = domain.compute, last.key
        if field.key not in _FLAT or compute is None or last.compute is not None or type(name) is not str:
            return None
        slot, missing = self.slot, no_such_key(name)

        def body(frame: Frame) -> Any:
            names = frame[slot][field.key]
            key = compute(frame)
            if type(key) not in KEY_TYPES:
                frame[0] += 2
                return key if type(key) is Failure else Failure(f"invalid qualifier type: {go_name(key)}")
            frame[0] += 3
            found = names.get(key, _EMPTY).get(name) if type(key) is str else None
            return missing if found is None else found

        return Step(self.own, body, path=self)

    def _names_of_computed_domain(self) -> Body | None:
        """What `device.attributes[expression]` yields, with the price of a presence test in it."""
        qualifiers = self.qualifiers
        if not self.device_slot or len(qualifiers) != 2 or any(qualifier.optional for qualifier in qualifiers):
            return None
        field, domain = qualifiers
        compute = domain.compute
        if field.key not in _FLAT or compute is None:
            return None
        slot = self.slot

        def body(frame: Frame) -> Any:
            names = frame[slot][field.key]
            found = compute(frame)
            if type(found) not in KEY_TYPES:
                frame[0] += 2
                return found if type(found) is Failure else Failure(f"invalid qualifier type: {go_name(found)}")
            frame[0] += 3
            return names.get(found, _EMPTY) if type(found) is str else _EMPTY

        return body

    def _flat(self) -> Step | None:
        """A lookup in the flat table of the device."""
        found = self.flat_key()
        if found is None:
            return None
        (slot, key), last = found, self.qualifiers[-1]
        if last.optional:

            def optional(frame: Frame) -> Any:
                value = frame[slot].get(key)
                if value is None:
                    return NONE
                frame[0] += 1
                return Optional(value)

            return Step(3, optional, path=self)
        missing = no_such_key(last.key)

        def body(frame: Frame) -> Any:
            value = frame[slot].get(key)
            return missing if value is None else value

        return Step(1 + len(self.qualifiers), body, path=self)

    def flat_key(self) -> tuple[int, str] | None:
        """Slot and key of the flat table for `device.attributes[domain].id`, `device.capacity[domain].id`,
        `device.driver` and `name.id` where the name is bound to one of the domains.

        The last selection may be an optional one.
        """
        qualifiers = self.qualifiers
        if not qualifiers or any(one.compute is not None or type(one.key) is not str for one in qualifiers):
            return None
        name = qualifiers[-1].key
        if self.domain is not None:
            plain = len(qualifiers) == 1 and not qualifiers[0].optional and _FLAT_SEPARATOR not in name
            return (self.domain.slot, self.domain.prefix + name) if plain else None
        if not self.device_slot or (len(qualifiers) != 3 and len(qualifiers) != 1):
            return None
        if len(qualifiers) == 1:
            return (self.device_slot, name) if name in _PLAIN_FIELDS and not qualifiers[0].optional else None
        if qualifiers[0].optional or qualifiers[1].optional:
            return None
        field, domain = qualifiers[0].key, qualifiers[1].key
        if field not in _FLAT or _FLAT_SEPARATOR in domain or _FLAT_SEPARATOR in name:
            return None
        return self.device_slot, f"{_FLAT[field]}{domain}{_FLAT_SEPARATOR}{name}"

    def or_constant(self, default: Any) -> Step | None:
        """`device.attributes[domain].?id.orValue(constant)` as one lookup."""
        found = self.flat_key()
        if found is None or not self.qualifiers[-1].optional:
            return None
        slot, key = found

        def body(frame: Frame) -> Any:
            value = frame[slot].get(key)
            if value is None:
                return default
            frame[0] += 1
            return value

        return Step(3, body)

    def _texts(self) -> Step | None:
        """Selections of constant texts, none of them optional, from a variable."""
        qualifiers = self.qualifiers
        if (
            not self.slot
            or not qualifiers
            or any(q.optional or q.compute or type(q.key) is not str for q in qualifiers)
        ):
            return None
        walk = _walk(self.root, qualifiers, precise=False)
        root = self.root
        if len(qualifiers) == 1:
            key, slot = qualifiers[0].key, self.slot

            def single(frame: Frame) -> Any:
                value = frame[slot]
                if type(value) is not Names:
                    value = root(frame)
                if type(value) is Names or type(value) is dict:
                    found = value.get(key)
                    if found is not None:
                        frame[0] += 1
                        return found
                return walk(frame)

            return Step(self.own, single, path=self)
        return None

    def presence(self, key: str, precise: bool, *, nested: bool = False) -> Body:
        """has(path.key): costs what the path costs; its own unit is due once the last selection is reached.

        One that is `nested`, in a ternary branch or as an index, pays its last selection whatever the path, and after
        an optional selection it yields, as upstream does, what is there.
        """
        flat = None if precise else self.extended(Qualifier(key, None, False)).flat_key()
        if flat is not None and self.qualifiers:
            slot, flat_key = flat

            def known(frame: Frame) -> Any:
                frame[0] += 3
                return flat_key in frame[slot]

            return known
        names = None if precise else self._names_of_computed_domain()
        if names is not None:
            look_up = names

            def among(frame: Frame) -> Any:
                found = look_up(frame)
                return found if type(found) is Failure else key in found

            return among
        own = 1 if nested else self.own
        # An optional that a selection opened is looked into; one that is just an element has no keys.
        opened: type[Optional] = _Opened if self.qualifiers else Optional
        resolve = _walk(self.root, self.qualifiers, precise, _Opened) if self.qualifiers else self.root

        def body(frame: Frame) -> Any:
            value = resolve(frame)
            if type(value) is Failure:
                if not own:
                    _give_back(frame, precise)
                return value
            is_open = type(value) is opened
            found: Any = None
            if is_open:  # here the unit is due only if the key is there
                found = present(value.value, key) if value.present else _MISSING
                if found is _MISSING or type(found) is Failure:
                    if not own:
                        _give_back(frame, precise)
                    if type(found) is Failure:
                        return found
                    return NONE if nested else False
                value = value.value
            spent = frame[0] + own
            frame[0] = spent
            if precise and spent > frame[1]:
                raise LimitReached
            if nested and is_open:
                return Optional(found)
            found = present(value, key)
            return found if type(found) is Failure else found is not _MISSING

        return body


class _Opened(Optional):
    """What a path yields after an optional selection, told apart from elements that are optionals."""

    __slots__ = ()


def _paid(body: Body, fixed: int) -> Body:
    if not fixed:
        return body

    def run(frame: Frame) -> Any:
        frame[0] += fixed
        return body(frame)

    return run


def _give_back(frame: Frame, precise: bool) -> None:
    """A presence test on a failed ternary gets back a unit it never paid; upstream's counter may pass below zero."""
    if not precise:
        raise LimitReached  # what was paid so far is known exactly only unit by unit
    frame[0] -= 1
    if frame[0] < 0:
        frame[0] = MOST
        raise LimitReached


def no_such_key(key: Any) -> Failure:
    """The error for a key that is not in a map."""
    return Failure(f"no such key: {text_of_key(key)}")


def text_of_key(key: Any) -> str:
    """A key as Go prints it."""
    if type(key) is bool:
        return "true" if key else "false"
    if key is None:
        return "<nil>"
    if type(key) is float:
        from drakkar.cel.libraries.conversions import float_text

        return float_text(key)
    return str(key) if isinstance(key, str | int) else str(getattr(key, "type_name", type(key).__name__))


def select(value: Any, key: Any) -> Any:
    """value[key], or a `Failure`."""
    found = _find(value, key)
    return no_such_key(key) if found is _MISSING else found


def present(value: Any, key: Any) -> Any:
    """value[key], or a marker for absence (`is_missing`)."""
    if isinstance(value, dict) or type(value) is list:
        if type(value) is list:
            index = _index(key)
            if type(index) is Failure:
                return index
            return value[index] if 0 <= index < len(value) else _MISSING
        return _find(value, key)
    return _MISSING


def _find(value: Any, key: Any) -> Any:
    kind = type(value)
    if kind is Domains:
        return value.get(key, _EMPTY) if type(key) is str else _EMPTY
    if isinstance(value, dict):
        if type(key) is str:
            return value.get(key, _MISSING)
        found = key_in(value, key)
        return _MISSING if found is None else value[found]
    if kind is list:
        index = _index(key)
        if type(index) is Failure:
            return index
        return value[index] if 0 <= index < len(value) else Failure(f"index out of bounds: {index}")
    return _MISSING


_EMPTY: Final[dict[str, Any]] = {}


def _index(key: Any) -> Any:
    kind = type(key)
    if kind is int or (kind is UInt and key <= INT_MAX):
        return int(key)
    if kind is float and abs(key) < 1e18 and key.is_integer():
        return int(key)
    if kind is float or kind is UInt:
        return Failure(f"unsupported index value {text_of_key(key)} in list")
    from drakkar.cel.values import type_name

    return Failure(f"unsupported index type '{type_name(key)}' in list")


def _precise(body: Body) -> Body:
    def run(frame: Frame) -> Any:
        value = body(frame)
        frame[0] += 1
        if frame[0] > frame[1]:
            raise LimitReached
        return value

    return run


def _walk(root: Body, qualifiers: tuple[Qualifier, ...], precise: bool, wrap: type[Optional] = Optional) -> Body:
    none = NONE if wrap is Optional else wrap(present=False)
    steps = [(qualifier.key, qualifier.compute, qualifier.optional) for qualifier in qualifiers]

    def body(frame: Frame) -> Any:
        value = root(frame)
        if type(value) is Failure:
            return value
        optional = False
        if type(value) is Optional:  # one that turns up on the way has no keys: upstream opens only the first
            if not value.present:
                return none
            value, optional = value.value, True
        for key, compute, is_optional in steps:
            kind = type(value)
            if compute is not None:
                key = compute(frame)
                if type(key) not in KEY_TYPES and type(key) is not Failure:
                    key = Failure(f"invalid qualifier type: {go_name(key)}")
            if is_optional:
                optional = True
            if type(key) is Failure:
                found = key
            elif optional:
                found = present(value, key)
                if found is _MISSING:
                    return none
            elif kind is Domains and type(key) is str:
                found = value.get(key, _EMPTY)
            else:
                found = select(value, key)
            if type(found) is Failure and optional:
                return found
            spent = frame[0] + 1
            frame[0] = spent
            if precise and spent > frame[1]:
                raise LimitReached
            if type(found) is Failure:
                return found
            value = found
        return wrap(value) if optional else value

    return body


def conditional(test: Body, then: Body, otherwise: Body) -> Body:
    """The root of a ternary: its parts are resolved, so a branch that is a path does not pay its own unit."""

    def body(frame: Frame) -> Any:
        value = test(frame)
        if value is True:
            return then(frame)
        if value is False:
            return otherwise(frame)
        return value if type(value) is Failure else NO_SUCH_OVERLOAD

    return body


def slot_reader(slot: int) -> Body:
    """Reads a variable."""

    def body(frame: Frame) -> Any:
        return frame[slot]

    return body


def lazy_reader(slot: int, start: Body, unset: object) -> Body:
    """Reads a name bound by cel.bind(), whose value is computed on first use."""

    def body(frame: Frame) -> Any:
        value = frame[slot]
        if value is unset:
            value = frame[slot] = start(frame)
        return value

    return body


def resolve_step(step: Step, precise: bool) -> Body:
    """A step inside a ternary branch or an index."""
    return step.path.resolve(precise) if step.path is not None else step.run()
