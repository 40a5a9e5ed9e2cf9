"""Every overload with the boundary values of its parameters, in every place where a value can stand.

What random expressions meet by luck is listed here: each function with what its parser takes and refuses, each argument
with a wrong type, as `dyn`, failing, and behind everything that can hold a value, each result in everything that takes
one. A case says what this project makes of the call, exactly, so that upstream's true or false judges the value.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import product
from typing import Any, Final

from drakkar.cel import CelError, DeviceValue, device_environment
from drakkar.cel.environment import Environment
from drakkar.cel.libraries.conversions import float_text
from drakkar.cel.libraries.ip import CIDRValue, IPValue
from drakkar.cel.libraries.times import timestamp_text
from drakkar.cel.libraries.url import URLValue
from drakkar.cel.signatures import Overload
from drakkar.cel.types import Type
from drakkar.cel.values import Duration, Optional, Timestamp, TypeValue, UInt
from drakkar.kube.quantity import Quantity, QuantityError
from drakkar.kube.semver import Version
from tools.fuzz_cel_pools import (
    BASES,
    LIST_ELEMENTS,
    LISTS,
    MAPS,
    OPTIONALS,
    PATTERNS,
    POOLS,
    TEMPLATES,
    TEXTS,
    ZONES,
    quoted,
)

Json = dict[str, Any]
Call = str

MOST: Final = 600
"""How many combinations of values one overload gets."""
LONGEST: Final = 3000

DEVICE: Final[Json] = {
    "driver": "gpu.nvidia.com",
    "attributes": {
        "s": {"string": "A100"}, "i": {"int": 7}, "b": {"bool": True}, "v": {"version": "1.2.3"},
        "d.example.com/s": {"string": "grüße"}, "d.example.com/list": {"strings": ["a", "b"]},
        "d.example.com/i": {"int": 0},
    },
    "capacity": {"memory": {"value": "80Gi"}, "d.example.com/memory": {"value": "1500m"}},
    "allowMultipleAllocations": False,
}  # fmt: skip

ENVIRONMENTS: Final[tuple[Json, ...]] = (
    {"env": "stored", "features": {}},
    {"env": "new", "features": {}},
    {"env": "new", "features": {"consumableCapacity": False}},
    {"env": "new", "features": {"listTypeAttributes": True}},
    *({"env": env, "features": {}, "minor": minor} for minor in (34, 35, 36) for env in ("stored", "new")),
    {"env": "new", "features": {"consumableCapacity": False}, "minor": 35},
    {"env": "new", "features": {"listTypeAttributes": True}, "minor": 36},
)
"""The environments of the versions that count."""

HOLDERS: Final = (
    "[{0}][0]", "{{'k': {0}}}.k", "{{'k': {0}}}['k']", "optional.of({0}).value()", "optional.of({0}).orValue({0})",
    "optional.none().orValue({0})",
    "(true ? {0} : {0})", "(device.allowMultipleAllocations ? {0} : {0})", "cel.bind(w, {0}, w)",
    "cel.bind(w, [{0}], w[0])", "dyn({0})", "[{0}].map(w, w)[0]",
    "[{0}].filter(w, true)[0]", "[[{0}]][0][0]", "{{'k': [{0}]}}.k[0]", "[{0}, {0}].reverse()[0]",
    "[{0}].first().value()", "optional.none().value()",
    "[optional.of({0})][0].value()", "[optional.none()][0].value()", "[{0}][dyn(0)]", "[dyn({0})][0]", "[{0}][5]",
    "dyn([{0}])[0]", "[{0}].map(w, true, w)[0]",
    "{{'k': {0}}}.transformList(a, b, b)[0]", "[{0}].transformMap(a, b, b)[0]",
    "optional.of({0}).optMap(w, w).value()", "([{0}] + [{0}])[0]",
    "[?optional.of({0})][0]", "{{?'k': optional.of({0})}}.k", "{{'k': {0}}}.?k.value()", "[{0}][?0].value()",
    "[][0]", "{{}}.k", "[optional.none()][0].or(optional.of({0})).value()",
    "[{0}][false ? 1 : 0]", "[{0}].flatten()[0]", "[{0}].slice(0, 1)[0]", "[{0}].sort()[0]", "[{0}].distinct()[0]",
    "[{0}].sortBy(w, 1)[0]", "optional.unwrap([optional.of({0})])[0]",
    "{{'k': {0}}}.transformMap(a, b, b).k", "cel.bind(w, optional.of({0}), w.value())",
    "dyn(optional.of({0})).value()", "{{0: {0}}}[0]", "{{dyn('k'): {0}}}.k", "[{0}][1.0]",
    "[{0}].transformMapEntry(a, b, {{a: b}})[0]", "optional.of({0}).optFlatMap(w, optional.of(w)).value()",
    "device.attributes['none'].k",
)  # fmt: skip
"""Where a value comes from: what holds it and gives it back."""

USES: Final = (
    "{0} == {0}", "{0} != {0}", "[{0}] == [{0}]", "{0} in [{0}]", "[{0}][0] == {0}", "cel.bind(w, {0}, w == w)",
    "[{0}].all(w, w == w)", "{{'k': {0}}}.k == {0}",
    "optional.of({0}).hasValue()", "type({0}) == type({0})", "[{0}].exists(w, w == {0})", "[][{0}] == 1",
    "[1][{0}] == 1", "{{{0}: 1}}.size() == 1", "{{'k': {0}}}.exists(w, w == 'k')",
    "{0}.size() == 1", "size({0}) == 1", "string({0}) == ''", "{0} || true", "true || {0}", "{0} && false", "!{0}",
    "-{0} == {0}", "{0} < {0}", "{0} >= {0}", "{0} + {0} == {0}",
    "{0} - {0} == {0}", "[{0}].indexOf({0}) == 0", "[{0}].sort() == [{0}]", "[{0}].isSorted()",
    "[{0}].join({0}) == ''", "'a'.contains({0})", "{0}.contains('a')", "{0}.all(w, true)",
    "{0}.exists(w, w == w)", "{0}.map(w, w) == {0}", "{0}.filter(w, true) == {0}", "{0}.exists_one(w, true)",
    "{0}.exists(k, v, true)", "{0}.transformMap(k, v, v) == {0}",
    "{0}.transformList(k, v, v) == {0}", "{0}[0] == 1", "{0}['a'] == 1", "{0}.a == 1", "has({0}.a)",
    "{0}.?a.hasValue()", "{0}[?0].hasValue()", "{0}[?'a'].hasValue()", "{0}.value() == 1",
    "{0}.orValue({0}) == {0}", "{0}.or(optional.none()).hasValue()", "'%s'.format([{0}]) == ''",
    "'%d'.format([{0}]) == ''", "sets.contains([{0}], [{0}])", "[{0}].distinct() == [{0}]",
    "dyn({0}) == {0}", "{0} == dyn({0})", "{0} != dyn({0})", "dyn({0}) in [{0}]", "{0}.matches('a')",
    "'a'.matches({0})", "'a'.replace('a', {0}).size() == 1", "{0}.split(',').all(w, w == '')",
    "[{0}].max() == {0}", "lists.range({0}) == []", "duration({0}) == {0}", "int({0}) == 1", "double({0}) == 1.0",
    "uint({0}) == 1u", "bool({0})", "bytes({0}) == b''", "timestamp({0}) == {0}",
    "{0} == null", "null == {0}", "{0} == 1", "1 == {0}", "{0} == 'a'", "{0} in {{'a': 1}}", "'a' in {0}",
    "{0} in {0}", "{0} ? true : false", "device.attributes[{0}].a == 1", "[{0}].includes({0})",
    "{0}.includes(1)", "{0}.flatten() == []", "{0}.distinct() == {0}", "{0}.reverse() == {0}",
    "{0}.first().hasValue()", "{0}.join(',') == ''", "{0}.sum() == 1", "quantity({0}).isInteger()",
    "isQuantity({0})", "ip({0}).family() == 4", "url({0}).getHost() == ''",
    "optional.ofNonZeroValue({0}).hasValue()", "{0}.optMap(w, w) == {0}", "[?{0}] == [1]",
    "{{?'k': {0}}} == {{'k': 1}}",
    "{0}.substring(1).trim() == ''", "cel.bind(w, {0}, cel.bind(u, w, u == w))",
    "[[{0}]].all(w, w.all(u, u == {0}))", "[{0}, {0}].map(w, [w]).all(u, u[0] == {0})", "{0}.getHours() == 1",
    "{{'k': {0}}}.transformList(k, v, v).all(w, w == {0})", "[1, 2].map(w, {0}).all(u, u == {0})",
    "[1].transformMap(k, v, {0}).all(u, u == 0)", "dyn([{0}]).exists(w, w == {0})",
)  # fmt: skip
"""What takes a value, and yields a bool."""

HIDDEN: Final = ("__not_strictly_false__", "_in_", "in", "@not_strictly_false")


@cache
def overloads() -> tuple[Overload, ...]:
    """Everything that device selectors can call, in a fixed order."""
    found = []
    for function, known in device_environment().functions.items():
        if function in HIDDEN or "@" in function.removeprefix("@in"):
            continue
        for overload in known:
            found.append(overload)
    return tuple(sorted(found, key=lambda one: (one.id, one.function)))


@cache
def calls_of(overload: Overload) -> tuple[tuple[Call, bool], ...]:
    """The calls of one overload, and whether they are worth asking in one more environment."""
    found: dict[Call, bool] = {}
    for kind, makes in _KINDS.items():
        for call in makes(overload):
            found.setdefault(call, kind == "shapes")
    return tuple(found.items())


def written(overload: Overload, arguments: list[str]) -> Call:
    """A call as it is written: operators, indexes, methods, functions."""
    name, first = overload.function, arguments[0] if arguments else ""
    if name == "_?_:_":
        return f"({first} ? {arguments[1]} : {arguments[2]})"
    if name in ("_[_]", "_[?_]"):
        return f"{first}[{'?' if '?' in name else ''}{arguments[1]}]"
    if name == "_?._":
        return f"{first}.?a"
    if name == "@in":
        return f"({first} in {arguments[1]})"
    if name.startswith("_"):
        return f"({first} {name.strip('_')} {arguments[1]})"
    if name.endswith("_"):
        return f"{name[0]}({first})"
    head = f"{first}.{name}" if overload.is_method else name
    return f"{head}({', '.join(arguments[overload.is_method :])})"


def _values(overload: Overload) -> Iterator[Call]:
    """Boundary values, all combinations of them or a fair choice."""
    pools = [_pool(overload, number, kind) for number, kind in enumerate(overload.parameters)]
    size = 1
    for pool in pools:
        size *= len(pool)
    if size <= MOST:
        chosen = [list(combination) for combination in product(*pools)]
    else:
        rng = random.Random(overload.id)
        chosen = [[rng.choice(pool) for pool in pools] for _ in range(MOST)]
        bases = _bases(overload)
        for number, pool in enumerate(pools):
            chosen += [[*bases[:number], value, *bases[number + 1 :]] for value in pool]
    for arguments in chosen:
        yield written(overload, arguments)
        if overload.id in TEXTS:  # constants are judged when they are compiled
            place = int(overload.is_method)
            yield written(overload, [*arguments[:place], f"[{arguments[place]}][0]", *arguments[place + 1 :]])


def _shapes(overload: Overload) -> Iterator[Call]:
    """Plain values wrapped in every holder, in every place; and every use of the result."""
    bases = _bases(overload)
    for number, base in enumerate(bases):
        for holder in HOLDERS:
            yield written(overload, [*bases[:number], holder.format(base), *bases[number + 1 :]])
    for use in USES:
        yield use.format(written(overload, bases))
    for holder in HOLDERS:
        yield written(overload, [holder.format(base) for base in bases])
        yield holder.format(written(overload, bases))


def _mistakes(overload: Overload) -> Iterator[Call]:
    """Values of wrong types, for the checker and (as dyn) for whatever runs."""
    bases = _bases(overload)
    for number in range(len(bases)):
        for base in BASES.values():
            yield written(overload, [*bases[:number], base, *bases[number + 1 :]])
            yield written(overload, [*bases[:number], f"dyn({base})", *bases[number + 1 :]])
            yield written(overload, [*bases[:number], f"[dyn({base})][0]", *bases[number + 1 :]])
    for base in BASES.values():
        yield written(overload, [f"dyn({base})"] * len(bases))
        yield written(overload, [f"[dyn({base})][0]"] * len(bases))
        yield written(overload, [*bases, base])
    if len(bases) > overload.is_method and overload.function[0] not in "_@!-":
        yield written(overload, bases[:-1])


def _dynamic(overload: Overload) -> Iterator[Call]:
    """Values whose types only the run knows."""
    bases = _bases(overload)
    for number, kind in enumerate(overload.parameters):
        pool = _pool(overload, number, kind)
        for value in pool[:: max(1, len(pool) // 12)]:
            yield written(overload, [*bases[:number], f"dyn({value})", *bases[number + 1 :]])
            yield written(overload, [*(f"[dyn({base})][0]" for base in bases[:number]), value, *bases[number + 1 :]])


_KINDS: Final = {"values": _values, "shapes": _shapes, "mistakes": _mistakes, "dynamic": _dynamic}


def _bases(overload: Overload) -> list[str]:
    return [_base(kind, overload) for kind in overload.parameters]


def _base(kind: Type, overload: Overload) -> str:
    """A plain value of a parameter."""
    if kind.kind == "list":
        element = kind.parameters[0]
        inner = _base(element, overload)
        return f"[{inner}, {inner}]" if element.kind != "param" else "['b', 'a']"
    if kind.kind == "map":
        return "{'a': 'x'}"
    if kind.name == "optional_type":
        return f"optional.of({_base(kind.parameters[0], overload)})"
    if kind.kind in ("param", "dyn"):
        return "'a'"
    if kind.kind == "string" and overload.id in TEXTS:
        return _SPECIAL_BASES.get(overload.id, TEXTS[overload.id][1])
    return BASES.get(kind.kind, BASES.get(kind.text, "dyn(1)"))  # of an authorizer there is no value


_SPECIAL_BASES: Final = {
    "string_to_duration": "'90s'",
    "string_to_timestamp": "'2024-02-29T12:00:00Z'",
    "format-named": "'uuid'",
    "string_to_quantity": "'80Gi'",
}


def _pool(overload: Overload, number: int, kind: Type) -> tuple[str, ...]:
    """The values a parameter is tried with."""
    if kind.kind == "string":
        if overload.id in TEXTS and number == int(overload.is_method):
            return TEXTS[overload.id]
        if overload.function in ("matches", "find", "findAll") and number == 1:
            return PATTERNS
        if overload.id.endswith("_tz") and number == 1:
            return tuple(map(quoted, ZONES))
        if overload.id == "string_format":
            return tuple(map(quoted, TEMPLATES))
        return POOLS["string"]
    if overload.id == "string_format":
        return (*(f"[{value}]" for pool in POOLS.values() for value in pool[:6]), "[]", "[1, 2]", "['a', 'b']")
    if kind.kind == "list":
        element = kind.parameters[0]
        if element.name == "optional_type":
            return tuple(f"[{inner}]" for inner in LIST_ELEMENTS["optional"])
        if element.kind in ("param", "dyn"):
            return LISTS
        return tuple(f"[{inner}]" for inner in LIST_ELEMENTS.get(element.text, LIST_ELEMENTS["dyn"]))
    if kind.kind == "map":
        return MAPS
    if kind.name == "optional_type":
        inner = kind.parameters[0]
        if inner.kind in ("list", "map"):
            return (*(f"optional.of({value})" for value in _pool(overload, -1, inner)), "optional.none()")
        return OPTIONALS
    if kind.kind in ("param", "dyn"):
        return _ANYTHING
    return POOLS.get(kind.kind, POOLS.get(kind.text, ("dyn(1)", "dyn('a')", "dyn(null)")))


_ANYTHING: Final = tuple(
    dict.fromkeys(
        value for name, base in BASES.items() for value in (base, POOLS[name][0], POOLS[name][len(POOLS[name]) // 2])
    )
)


def random_case(rng: random.Random, name: str) -> Json:
    """A case of the grid; every overload is as likely."""
    call, _ = rng.choice(calls_of(rng.choice(overloads())))
    return grid_case(call, rng.randrange(len(ENVIRONMENTS)), name)


def grid_case(call: Call, environment: int, name: str) -> Json:
    """A case in the oracle's format: what the call gives, in this environment."""
    return {"name": f"grid/{name}", "expression": judged(call), "device": DEVICE, **ENVIRONMENTS[environment]}


def cases(seed: int) -> Iterator[Json]:
    """The whole grid in an order of the seed's: what depends on it in three environments, the rest in two."""
    order = []
    for overload in overloads():
        for number, (call, shaped) in enumerate(calls_of(overload)):
            chosen = (0, 2 + number % (len(ENVIRONMENTS) - 2), *([1] if shaped else []))
            order += [(call, environment, f"{overload.id}-{number}-{environment}") for environment in chosen]
    random.Random(seed).shuffle(order)
    return (grid_case(*one) for one in order)


@lru_cache(maxsize=4096)
def judged(call: Call) -> str:
    """An expression that is true if the call gives what it gives here; the call itself where that is a bool."""
    try:
        value = _evaluated(call)
    except CelError as error:
        return call if error.kind != "runtime" and error.kind != "cost" else f"type({call}) == type"
    if isinstance(value, bool):
        return call
    for text in (_judgement(call, value), f"type({call}) == type"):
        if text and len(text.encode()) < LONGEST and _compiles(text):
            return text
    return call


def _judgement(call: Call, value: Any) -> str:
    if isinstance(value, float):
        return f"string({call}) == {quoted(float_text(value))}"
    if isinstance(value, IPValue | CIDRValue | Timestamp):
        return f"string({call}) == {literal_of_text(value)}"
    accessors = _ACCESSORS.get(type(value))
    if accessors is not None:
        tests = []
        for accessor in accessors:
            if not _compiles(f"[{call}].all(w, w.{accessor}() == w.{accessor}())"):
                return ""  # of the call's static type there is no such accessor
            found = literal(_evaluated(f"[{call}].map(w, w.{accessor}())[0]"))
            tests.append(f"w.{accessor}() == {found}" if found else f"w.{accessor}() == w.{accessor}()")
        if isinstance(value, Quantity):
            try:
                tests.append(f"w.compareTo(quantity('{value.canonical()}')) == 0")
            except QuantityError:
                pass
        return f"[{call}].all(w, {' && '.join(tests)})"
    found = literal(value)
    if not found:
        return ""
    plain = f"{call} == {found}"
    return plain if _compiles(plain) else f"dyn({call}) == {found}"


_ACCESSORS: Final[dict[type, tuple[str, ...]]] = {
    URLValue: ("getScheme", "getHost", "getHostname", "getPort", "getEscapedPath", "getQuery"),
    Version: ("major", "minor", "patch"),
    Quantity: ("isInteger",),
}


def literal_of_text(value: Any) -> str:
    """How string() shows an address, a network or a time."""
    if isinstance(value, Timestamp):
        return quoted(timestamp_text(value))
    return quoted(value.shown())


def literal(value: Any) -> str:
    """A value as an expression, or an empty text."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, UInt):
        return f"{int(value)}u"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"double('{float_text(value)}')"
    if isinstance(value, str):
        return quoted(value) if value.isprintable() or all(c in "\n\r\t\0" or c.isprintable() for c in value) else ""
    if isinstance(value, bytes):
        return "b'" + "".join(f"\\x{byte:02x}" for byte in value) + "'"
    if isinstance(value, Duration):
        return f"duration('{value.nanos}ns')"
    if isinstance(value, TypeValue):
        return value.name
    if isinstance(value, Optional):
        inner = literal(value.value) if value.present else ""
        return "optional.none()" if not value.present else f"optional.of({inner})" if inner else ""
    if isinstance(value, list):
        inside = [literal(item) for item in value]
        return f"[{', '.join(f'dyn({item})' for item in inside)}]" if all(inside) else ""
    if type(value) is dict:
        pairs = [(literal(key), literal(item)) for key, item in value.items()]
        whole = all(key and item for key, item in pairs)
        return "{" + ", ".join(f"dyn({key}): dyn({item})" for key, item in pairs) + "}" if whole else ""
    return ""


@cache
def _free() -> tuple[Environment, DeviceValue]:
    """An environment in which an expression may have any type, and the device."""
    environment = copy.copy(device_environment())
    environment.result = ()
    return environment, DeviceValue.from_json(DEVICE["driver"], DEVICE)


def _evaluated(text: str) -> Any:
    environment, device = _free()
    return environment.compile(text).evaluate({"device": device}).value


def _compiles(text: str) -> bool:
    try:
        device_environment().compile(text)
    except CelError:
        return False
    return True
