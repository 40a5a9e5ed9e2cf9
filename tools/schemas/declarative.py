"""Turn Kubernetes' generated declarative validation (KEP-5073) into a table that `drakkar.api.declarative` interprets.

Since 1.34 a growing part of validation is not written by hand but generated from tags on the Go types. The generated
functions are extremely regular, so they are read as data: per type its own checks, per field the checks in order, with
the stability level (alpha checks are not enforced), and whether a failure ends the field.

    python declarative.py DIR ../../src/drakkar/api/data     # DIR of the k8s.io/kubernetes module
"""

from __future__ import annotations

import json
import re
import sys
import zlib
from pathlib import Path
from typing import Any

GROUPS = {
    "resource.k8s.io/v1": "resource/v1",
    "resource.k8s.io/v1beta1": "resource/v1beta1",
    "resource.k8s.io/v1beta2": "resource/v1beta2",
}
FUNCTION = re.compile(r"^func (Validate_\w+)\((.*?)^}\n", re.M | re.S)
FIELD = re.compile(r"^\t\{ // field \w+\.(\w+)\.(\w+)\n(.*?)^\t\}\n", re.M | re.S)
STEP = re.compile(
    r"if e := validate\.(\w+)\(ctx, op, fldPath, obj, oldObj(.*?)\)((?:\.Mark\w+\(\))*); len\(e\) != 0 \{(.*?)\n\t+\}"
    r"|errs = append\(errs, (?:\w+\.)?Validate_(\w+)\(ctx, op, fldPath",
    re.S,
)
PATH = re.compile(r"errs = append\(errs, fn\((.*?), &?obj\.", re.S)
SYMBOLS = re.compile(r"^var symbolsFor(\w+) = sets\.New\((.*?)\)$", re.M)
UNIONS = re.compile(r"^var (unionMembershipFor\w+) = validate\.New\w*UnionMembership\((.*)\)$", re.M)


def symbols_of(module: Path, package: str) -> dict[str, str]:
    """Values of the string constants of the API package (module k8s.io/api beside it), by name."""
    version = module.name.partition("@v1")[2]
    text = (module.parent / f"api@v0{version}" / package / "types.go").read_text()
    return dict(re.findall(r'^\s+(\w+)(?: +[\w.]+)? += (?:\w+\()?"([^"]*)"', text, re.M))


def keys_of(arguments: str) -> list[str] | str | None:
    """The JSON names that a match function compares, "=" for direct comparison, None for no match function."""
    compared = re.findall(r"a\.(\w+) == b\.\1|\(a\.(\w+) == nil|\*a\.(\w+) == \*b", arguments)
    names = list(dict.fromkeys(name for found in compared for name in found if name))
    if names:
        return [json_name(name) for name in names]
    if re.match(r",\s*validate\.(DirectEqual|SemanticDeepEqual)", arguments):
        return "="
    return None


def json_name(go_name: str) -> str:
    special = {"UID": "uid", "ShareID": "shareID", "IPs": "ips", "CEL": "cel", "ID": "id"}
    return special.get(go_name, go_name[0].lower() + go_name[1:])


def target(arguments: str) -> str:
    """What is called for each item: `@Type`, or a validator with its argument (`MaxBytes:64`)."""
    nested = re.findall(r"return validate\.(\w+)\(ctx, op, fldPath, obj, oldObj(?:, (\d+))?\)", arguments)
    if nested:
        return ":".join(part for part in nested[0] if part)
    called, plain = re.findall(r"(?:\w+\.)?Validate_(\w+)\s*$|validate\.(\w+)\s*$", arguments.strip())[-1]
    return "@" + called if called else plain


def step(match: re.Match[str], constants: dict[str, dict[str, list[str]]]) -> list[Any] | None:
    name, arguments, marks, body, call = match.groups()
    if call:
        return ["call", "@" + call, "s"]
    level = "a" if "MarkAlpha" in marks else "b" if "MarkBeta" in marks else "s"
    flags = level + ("x" if "earlyReturn = true" in body else "") + ("" if "errs = append" in body else "q")
    numbers = re.findall(r",\s*(\d+)\s*$", arguments)
    if name in ("MaxItems", "MinItems", "MaxLength", "MinLength", "MaxBytes", "Minimum", "Maximum", "MaxProperties"):
        return [name, int(numbers[0]), flags]
    if name == "ValSliceUnique":
        return [name, keys_of(arguments), flags]
    if name == "EachValSliceVal":
        return [name, keys_of(arguments), target(arguments), flags]
    if name in ("EachMapVal", "EachMapKey"):
        return [name, target(arguments), flags]
    if name == "Subfield":
        return [name, re.findall(r'"(\w+)"', arguments)[0], target(arguments), flags]
    if name == "IfOption":
        option, wanted, what = re.findall(r'"(\w+)", (true|false), validate\.(\w+)', arguments)[0]
        return [name, option, wanted == "true", what, flags]
    if name == "Enum":
        return [name, constants["symbols"][re.findall(r"symbolsFor(\w+)", arguments)[0]], flags]
    if name == "Union":
        return [name, constants["unions"][re.findall(r"(unionMembershipFor\w+)", arguments)[0]], flags]
    if name in ("DependentRequired", "DependentForbidden"):
        return [name, *re.findall(r'"(\w+)"', arguments)[:2], flags]
    if name.startswith("Update"):
        return ["Update", re.findall(r"validate\.(No\w+)", arguments), flags]
    if arguments.strip(", \n"):
        raise SystemExit(f"unknown arguments of {name}: {arguments}")
    return [name, flags]


def table(text: str, values: dict[str, str]) -> dict[str, Any]:
    symbols = {
        name: sorted(values[constant.split(".")[-1]] for constant in listed.split(", "))
        for name, listed in SYMBOLS.findall(text)
    }
    unions = {name: re.findall(r'Member\("(\w+)"', members) for name, members in UNIONS.findall(text)}
    constants = {"symbols": symbols, "unions": unions}
    result: dict[str, Any] = {}
    for name, body in FUNCTION.findall(text):
        entry: dict[str, Any] = {"f": []}
        outside = FIELD.sub("", body)
        own = [step(found, constants) for found in STEP.finditer(outside)]
        if own:
            entry["t"] = own
        for _, _, content in FIELD.findall(body):
            path = PATH.findall(content)[0]
            child = "" if path.startswith("safe.Value") else re.findall(r'Child\("([^"]+)"\)', path)[0]
            cohorts = re.split(r"func\(\) \{ // cohort = ", content)
            groups = [[step(found, constants) for found in STEP.finditer(part)] for part in cohorts]
            entry["f"].append([child, [group for group in groups if group]])
        if entry["f"] or own:
            result[name.removeprefix("Validate_")] = entry
    return result


def main() -> None:
    module, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for version, package in GROUPS.items():
        text = (module / "pkg/apis" / package / "zz_generated.validations.go").read_text()
        rules = table(text, symbols_of(module, package))
        name = version.replace("/", "_") + ".declarative.json.z"
        (folder / name).write_bytes(zlib.compress(json.dumps(rules, separators=(",", ":")).encode(), 9))
        print(version, len(rules), "types")


if __name__ == "__main__":
    main()
