"""Random selectors from the environment's own list of functions, and what they must agree in with upstream.

Expressions are made type by type: whatever yields a bool, from literals over every overload that the environment
declares to comprehensions. A few arguments get a wrong type, so that the checker and run-time errors are raced, too. An
expression is a tree of texts, which is what makes it shrink: a part gives way to one of its own parts or to a literal.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from drakkar.cel import CelError, DeviceValue, device_environment, types
from drakkar.cel.environment import Environment
from drakkar.cel.signatures import Overload
from drakkar.cel.types import Type
from tools import fuzz_cel_grid
from tools.fuzz_cel_devices import random_device
from tools.fuzz_cel_parts import ELEMENTS, MACROS, NAMES, PATHS, Part, Scope, kind_of
from tools.vectors.cel import MAX_BYTES, MAX_COST

Json = dict[str, Any]

LITERALS: Final[dict[str, tuple[str, ...]]] = {
    "bool": ("true", "false"),
    "int": ("0", "1", "2", "-1", "3", "64", "1000", "9223372036854775807", "-9223372036854775808", "0x1F"),
    "uint": ("0u", "1u", "2u", "18446744073709551615u"),
    "double": ("0.0", "1.5", "-2.25", "1e300", "2.0", "-0.0"),
    "string": (
        "''", "'a'", "'A100'", "'80Gi'", "'10.0.0.1'", "'fe80::1'", "'https://h:80/p?q=1#f'", "'1.2.3'", "'v1.2'",
        "'10.0.0.0/8'", "'abc DEF abc'", "'grüße 😀'", "'1h30m'", "'2024-02-29T23:59:59.5Z'", "'a,b,,c'", "'^[a-z]+$'",
        "'%s %d'", "'%.2f|%x'", "r'\\d+'", "'true'", "'UTC'", "'-12'", "'1e3'", "'dns1123Label'", "'a\\nb'", "'+02:00'",
    ),
    "bytes": ("b''", "b'abc'", "b'\\xff\\x00'"),
    "duration": ("duration('1h')", "duration('-90s')", "duration('0.5s')"),
    "timestamp": ("timestamp('2024-02-29T12:00:00Z')", "timestamp('1970-01-01T00:00:00.001+01:00')"),
    "kubernetes.Quantity": ("quantity('80Gi')", "quantity('1500m')", "quantity('-2')", "quantity('1e3')"),
    "kubernetes.Semver": ("semver('1.2.3')", "semver('2.0.0-rc.1+b')", "semver('v1.2', true)"),
    "kubernetes.URL": ("url('https://h:80/p?q=1')", "url('/path')"),
    "kubernetes.NamedFormat": ("format.dns1123Label()", "format.uuid().value()"),
    "net.IP": ("ip('10.0.0.1')", "ip('fe80::1')", "ip('127.0.0.1')"),
    "net.CIDR": ("cidr('10.0.0.0/8')", "cidr('fe80::/64')"),
    "null": ("null",),
    "type": ("int", "string", "type(1)", "net.IP", "list"),
}  # fmt: skip
UNREACHABLE: Final = ("kubernetes.authorization.",)
HIDDEN: Final = ("__not_strictly_false__", "_in_")
DEPTH: Final = 5

LOOSE: Final = (
    ("IP Address", "network address parse error"),
    ("URL parse error",),
    ("time zone", "time: invalid location", "strconv.Atoi", "is a directory", "not a directory"),
    ("Invalid character(s)",),
    ("invalid qualifier type", "optional.none() dereference"),
    ("no such overload",),
    ("internal error: interface conversion",),
    ("error parsing regexp",),
    ("unsupported conversion to ref.Val",),
    ("from non-optional value",),
)
"""Texts of which the detail is not compared: Go's standard library on addresses, URLs and time zones, Go's panics, Go's
ways to print a value, and which of several errors of one call comes first.
"""
_INFERRED: Final = re.compile(r"(applied to|but found|was given) '?.*")
"""Types in errors of the checker: Go tries overloads in random order, which shows in what it infers."""
_VARIABLE: Final = re.compile(r"_var[0-9]+")
"""Type variables, which Go does not always number alike."""

ARGUMENTS: Final = ("--timeout", "4s")
MODULES: Final = "drakkar/cel"
UNTRACED: Final = ("clauses.py", "libraries/authorization.py")
"""Explanations, and what device selectors cannot reach."""


class Maker:
    """Makes expressions of a wanted type."""

    def __init__(self, rng: random.Random, environment: Environment) -> None:
        self.rng = rng
        self.names = 0
        self.by_result: dict[str, list[Overload]] = {}
        for function, overloads in environment.functions.items():
            if function in HIDDEN or "@" in function.removeprefix("@in"):
                continue
            for overload in overloads:
                shown = (overload.result, *overload.parameters)
                if not any(candidate.text.startswith(UNREACHABLE) for candidate in shown):
                    self.by_result.setdefault(kind_of(overload.result), []).append(overload)

    def make(self, wanted: Type, depth: int, scope: Scope) -> Part:
        """An expression that (mostly) has this type."""
        rng = self.rng
        if wanted.kind == "param":
            wanted = rng.choice(ELEMENTS)
        if rng.random() < 0.02:
            wanted = rng.choice((*ELEMENTS, types.list_of(types.INT), types.NULL))
        ways = [self.leaf] if depth <= 0 else [self.leaf, self.call, self.call, self.call, self.macro]
        return rng.choice(ways)(wanted, depth - 1, scope)

    def leaf(self, wanted: Type, depth: int, scope: Scope) -> Part:
        """A variable, a path into the device, or a literal."""
        rng = self.rng
        fitting = [name for name, found in scope if found is wanted or types.DYN in (found, wanted)]
        if fitting and rng.random() < 0.7:
            return Part(wanted, rng.choice(fitting))
        if wanted.text in PATHS and rng.random() < 0.6:
            return Part(wanted, rng.choice(PATHS[wanted.text]))
        return self.literal(wanted, depth, scope)

    def literal(self, wanted: Type, depth: int, scope: Scope) -> Part:
        """The shortest ways to write a value."""
        rng = self.rng
        if wanted.kind == "list":
            return self.list_of(wanted, rng.randint(0, 3), depth, scope)
        if wanted.kind == "map":
            key, value = wanted.parameters
            found: list[str | Part] = ["{"]
            for number in range(rng.randint(0, 2)):
                found += [", " if number else "", self.make(key, depth, scope), ": ", self.make(value, depth, scope)]
            return Part(wanted, *found, "}")
        if wanted.name == "optional_type":
            if rng.random() < 0.3:
                return Part(wanted, "optional.none()")
            return Part(wanted, "optional.of(", self.make(wanted.parameters[0], depth, scope), ")")
        if wanted.kind == "type":
            return Part(wanted, rng.choice(LITERALS["type"]))
        known = LITERALS.get(wanted.text)
        if known is None:
            return self.make(rng.choice(ELEMENTS[:5]), depth, scope)
        return Part(wanted, rng.choice(known))

    def list_of(self, wanted: Type, size: int, depth: int, scope: Scope) -> Part:
        found: list[str | Part] = ["["]
        for number in range(size):
            found += [", " if number else "", self.make(wanted.parameters[0], depth, scope)]
        return Part(wanted, *found, "]")

    def call(self, wanted: Type, depth: int, scope: Scope) -> Part:
        """One of the overloads that yield the type."""
        rng = self.rng
        fitting = self.by_result.get(kind_of(wanted), [])
        if rng.random() < 0.2 or not fitting:
            fitting = self.by_result["param"]
        overload = rng.choice(fitting)
        bound: dict[Type, Type] = {}
        types.assignable(bound, wanted, overload.result)
        arguments = []
        for parameter in overload.parameters:
            for inner in _free(parameter):
                bound.setdefault(inner, rng.choice(ELEMENTS))
            arguments.append(self.make(types.substitute(bound, parameter, True), depth, scope))
        return Part(wanted, *_written(overload, arguments, rng))

    def macro(self, wanted: Type, depth: int, scope: Scope) -> Part:
        """A comprehension or another macro that yields the type."""
        fitting = [build for produced, build in MACROS if produced in ("", kind_of(wanted))]
        return self.rng.choice(fitting)(self, wanted, depth, scope)

    def name(self) -> str:
        self.names += 1
        return f"x{self.names}"

    def items(self, depth: int, scope: Scope) -> tuple[Part, Type, Type]:
        """Something to iterate over, and the types of key (or index) and value."""
        rng = self.rng
        if rng.random() < 0.6:
            element = rng.choice(ELEMENTS)
            found = self.make(types.list_of(element), depth, scope)
            if rng.random() < 0.2:
                element, found = types.INT, Part(types.list_of(types.INT), f"lists.range({rng.choice((3, 20, 400))})")
            return found, types.INT, element
        kind = types.map_of(types.STRING, rng.choice((types.DYN, types.INT, types.STRING)))
        return self.make(kind, depth, scope), types.STRING, kind.parameters[1]

    def iterated(
        self, function: str, wanted: Type, body: Type, depth: int, scope: Scope, *, two: bool, filtered: bool = False
    ) -> Part:
        """`items.function(x, body)` or, with two variables, `items.function(k, v, body)`, perhaps with a filter."""
        values, key, element = self.items(depth, scope)
        first = element if values.type.kind == "list" and not two else key
        names = [self.name(), self.name()] if two else [self.name()]
        inner = [*scope, (names[0], first), *([(names[1], element)] if two else [])]
        test: list[str | Part] = [self.make(types.BOOL, depth, inner), ", "] if filtered else []
        return Part(wanted, values, f".{function}({', '.join(names)}, ", *test, self.make(body, depth, inner), ")")


def _free(candidate: Type) -> Iterator[Type]:
    if candidate.kind == "param":
        yield candidate
    for inner in candidate.parameters:
        yield from _free(inner)


def _written(overload: Overload, arguments: list[Part], rng: random.Random) -> list[str | Part]:
    """The call as it is written: operators, indexes, methods, functions."""
    name = overload.function
    if name == "_?_:_":
        return ["(", arguments[0], " ? ", arguments[1], " : ", arguments[2], ")"]
    if name in ("_[_]", "_[?_]"):
        return [arguments[0], "[?" if "?" in name else "[", arguments[1], "]"]
    if name == "_?._":
        return [arguments[0], ".?", rng.choice(NAMES)]
    if name == "@in":
        return ["(", arguments[0], " in ", arguments[1], ")"]
    if name.startswith("_"):
        return ["(", arguments[0], f" {name.strip('_')} ", arguments[1], ")"]
    if name.endswith("_"):
        return [name[0], "(", arguments[0], ")"]
    found: list[str | Part] = [arguments[0], f".{name}("] if overload.is_method else [f"{name}("]
    for number, argument in enumerate(arguments[overload.is_method :]):
        found += [", " if number else "", argument]
    return [*found, ")"]


FROM_THE_GRID: Final = 0.15
"""The share of cases that are one of the systematic list, `tools.fuzz_cel_grid`."""


def systematic(seed: int) -> Iterator[Json]:
    """Every overload with boundary values and in every place: the cases of `--systematic`, ordered by the seed."""
    return fuzz_cel_grid.cases(seed)


def random_case(seed: int) -> tuple[Json, Part | None]:
    """A case in the format of the oracle and the tree of its expression; equal seeds give equal cases."""
    rng = random.Random(seed)
    if rng.random() < FROM_THE_GRID:
        return fuzz_cel_grid.random_case(rng, str(seed)), None
    env = "stored" if rng.random() < 0.7 else "new"
    features = {name: rng.random() < 0.5 for name in ("consumableCapacity", "listTypeAttributes") if env == "new"}
    tree: Part | None = None
    if rng.random() < 0.85:
        tree = Maker(rng, device_environment()).make(types.BOOL, rng.randint(2, DEPTH), [])
        expression = str(tree)
    else:
        expression = _damaged(rng, rng.choice(_corpus()))
    case = {
        "name": f"cel/{seed}",
        "expression": expression,
        "env": env,
        "features": features,
        "device": random_device(rng),
    }
    return case, tree


_known: list[str] = []


def _corpus() -> list[str]:
    """The short expressions of the recorded cases."""
    if not _known:
        for path in sorted(Path("cases/cel").glob("*.jsonl")):
            texts = (json.loads(line)["expression"] for line in path.read_text().splitlines() if line.strip())
            _known.extend(text for text in texts if len(text) < 300)
    return _known


def _damaged(rng: random.Random, text: str) -> str:
    """A text with a few characters or words taken out, doubled or put in."""
    for _ in range(rng.randint(1, 2)):
        place = rng.randrange(len(text) + 1)
        end = min(len(text), place + rng.randint(1, 4))
        way = rng.random()
        if way < 0.4:
            text = text[:place] + text[end:]
        elif way < 0.6:
            text = text[:end] + text[place:]
        else:
            text = text[:place] + rng.choice(_SNIPPETS) + text[place:]
    return text


_SNIPPETS: Final = (
    "(",
    ")",
    "[",
    "]",
    ".",
    "?",
    " == ",
    " && ",
    "!",
    "-",
    "1",
    "'",
    '"',
    ",",
    "x",
    "in ",
    "{",
    "\n",
    "é",
)


def ours(case: Json) -> Json:
    """What this project makes of a case, in the oracle's words."""
    features = case["features"]

    def environment(mode: Any) -> Environment:
        return device_environment(
            mode=mode,
            minor=case.get("minor", 37),
            consumable_capacity=features.get("consumableCapacity", True),
            list_attributes=features.get("listTypeAttributes", False),
        )

    answer: Json = {"result": None, "compileError": None, "runtimeError": None, "estimatedCost": None}
    answer["actualCost"] = None
    device = DeviceValue.from_json(case["device"]["driver"], case["device"])
    try:
        program = environment(case["env"]).compile(case["expression"])
        answer["estimatedCost"] = program.estimated_cost
        try:
            found = program.evaluate({"device": device})
            answer["result"], answer["actualCost"] = found.value, found.cost
        except CelError as error:
            answer["runtimeError"] = error.message
            answer["actualCost"] = None if device.problem else error.cost  # upstream does not even begin
    except CelError as error:
        answer["compileError"] = error.message
    answer["admissionError"] = _admission(case["expression"], environment)
    return answer


def _admission(text: str, environment: Callable[[Any], Environment]) -> str | None:
    if len(text.encode()) > MAX_BYTES:
        return f"may not be more than {MAX_BYTES} bytes"
    try:
        program = environment("new").compile(text)
    except CelError as error:
        return error.message
    return "too complex, exceeds cost limit" if program.estimated_cost > MAX_COST else None


def kind(theirs: Json) -> str:
    """How a case ended, to count."""
    if theirs["compileError"] is not None:
        return "refused"
    return "failed" if theirs["runtimeError"] is not None else "evaluated"


def difference(mine: Json, theirs: Json) -> str:
    """The first field in which the two differ, or an empty text."""
    for field, own in mine.items():
        other = theirs[field]
        if field.endswith("Error") and own is not None and other is not None:
            if not _same_error(own, other):
                return field
        elif own != other:
            return field
    return ""


def _same_error(own: str, other: str) -> bool:
    """Upstream's text; of syntax errors only that there is one, since its parser recovers and guesses on."""
    if "Syntax error" in other or "Syntax error" in own:
        return "ERROR" in own and "ERROR" in other
    own, other = (_VARIABLE.sub("_var", _INFERRED.sub(r"\1", text)) for text in (own, other))
    if own == other:
        return True
    return any(all(any(word in text for word in family) for text in (own, other)) for family in LOOSE)


def smaller(case: Json, tree: Part | None) -> Iterator[tuple[Json, Part | None]]:
    """The case with something taken out, large things first; those of the list are small."""
    if case["name"].startswith("grid/"):
        return
    for place in ("attributes", "capacity"):
        for name in case["device"][place]:
            kept = {key: value for key, value in case["device"][place].items() if key != name}
            yield {**case, "device": {**case["device"], place: kept}}, tree
    if tree is None:
        text = case["expression"]
        for size in (16, 8, 4, 2, 1):
            for start in range(0, len(text), size):
                yield {**case, "expression": text[:start] + text[start + size :]}, None
        return
    for part in (tree, *tree.parts()):
        candidates = [below for below in part.parts() if below.type is part.type or part.type is types.DYN]
        simple = LITERALS.get(part.type.text, ())[:1] if part.type.kind != "list" else ("[]",)
        candidates += [Part(part.type, text) for text in simple if str(part) != text]
        for candidate in candidates:
            shrunk = tree.with_part(part, candidate)
            yield {**case, "expression": str(shrunk)}, shrunk
