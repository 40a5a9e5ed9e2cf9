"""Build the table of Kubernetes' internal types that refusals show: as values, and a refused pod update as a diff.

A server compares and prints its internal types, which have no JSON tags: Go's field names in Go's order, everything
written. Their order is in the source only; this reads the struct definitions that the roots reach.

    go mod download -json k8s.io/kubernetes@v1.37.2        # prints "Dir"
    python internal.py DIR ../../src/drakkar/cluster/machinery/data/internal.json
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOTS = {
    "batch": ("SuccessPolicy",),
    "core": ("PodSpec", "ServicePort"),
    "policy": ("PodDisruptionBudgetSpec",),
    "rbac": ("RoleRef",),
}
SCALARS = {"string": "s", "bool": "b", "int": "i", "int32": "i", "int64": "i", "uint32": "i"}
# Types of other packages: a quantity or port prints its value, the rest the JSON of its versioned form.
FOREIGN = {"resource.Quantity": "q", "intstr.IntOrString": "i", "types.UID": "s", "metav1.LabelSelector": "j"}
STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"^type (\w+) (string|bool|int|int32|int64|uint32|map\[[\w.]+\][\w.*]+)$", re.MULTILINE)
FIELD = re.compile(r"^\t(?:(\w+)\s+)?(\*?[\w.\[\]*]+)(?:\s+`[^`]*`)?$")


def main(kubernetes: Path, target: Path) -> None:
    table: dict[str, list[str]] = {}
    for package, roots in ROOTS.items():
        found = reached((kubernetes / "pkg/apis" / package / "types.go").read_text(), roots)
        if twice := table.keys() & found.keys():
            raise SystemExit(f"{package}: other types of these names are there: {sorted(twice)}")
        table |= found
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(table[name])}" for name in sorted(table))
    target.write_text("{\n" + lines + "\n}\n")


def reached(text: str, roots: Sequence[str]) -> dict[str, list[str]]:
    """The structs of a source file that the roots reach, by their names: their fields and types."""
    text = re.sub(r"[ \t]*//.*", "", text)
    structs = {match.group(1): match.group(2) for match in STRUCT.finditer(text)}
    named = {match.group(1): match.group(2) for match in NAMED.finditer(text)}
    table: dict[str, list[str]] = {}
    wanted = [*roots]
    while wanted:
        name = wanted.pop()
        if name in table:
            continue
        table[name] = []
        for line in structs[name].splitlines():
            match = FIELD.match(line)
            if match is None:
                if line.strip():
                    raise SystemExit(f"{name}: cannot read {line!r}")
                continue
            field, kind = match.groups()
            code, inner = expression(kind, structs, named)
            wanted += inner
            table[name].append(f"{field or '+'} {code}")
    return table


def expression(kind: str, structs: dict[str, str], named: dict[str, str]) -> tuple[str, list[str]]:
    """The type in the table's form: `*` pointer, `[]` list, `{}` map, a letter, or the name of a struct."""
    if kind.startswith("*"):
        code, inner = expression(kind[1:], structs, named)
        return "*" + code, inner
    if kind.startswith("[]"):
        code, inner = expression(kind[2:], structs, named)
        return "[]" + code, inner
    if kind.startswith("map["):
        code, inner = expression(kind.partition("]")[2], structs, named)
        return "{}" + code, inner
    if kind in SCALARS:
        return SCALARS[kind], []
    if kind in named:
        return expression(named[kind], structs, named)
    if kind in structs:
        return kind, [kind]
    return FOREIGN.get(kind, "j"), []


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
