"""`drakkar lint --fix`: mistakes with one right form are put right, everything else is left to people.

A fix is certain when the API would have refused or dropped what is written, and only one thing can have been meant: a
field that moved, a mode that was misspelt, a gate that has no effect any more. What would change the meaning of
something that works is never touched. After each round the files are reviewed again: a fix that does not help, or that
brings a new error, is taken back, so that a second run finds nothing to do.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from drakkar.errors import DrakkarError
from drakkar.kube.paths import value_at
from drakkar.migration.context import Context, kubernetes
from drakkar.migration.documents import Csv, Document, Steps, read_bytes
from drakkar.migration.findings import Finding
from drakkar.migration.lint import lint
from drakkar.migration.rewriting.rewrite import rewrite_file

__all__ = ["FIXABLE", "Fixed", "fix"]

Object = dict[str, Any]
_ROUNDS: Final = 8


@dataclass(frozen=True)
class Fixed:
    """The files after their fixes, by name, and the findings that went away."""

    files: Mapping[str, bytes]
    findings: tuple[Finding, ...]


def fix(
    files: Mapping[str, bytes],
    contexts: Sequence[Context],
    *,
    inventory: Iterable[Mapping[str, Any]] | None = None,
    namer: Callable[[str], str] = str,
) -> Fixed:
    """Put right what is certain in all of the versions.

    `namer` gives the name under which a file is reported. Raises DrakkarError for files that cannot be read.
    """
    recorded = list(inventory) if inventory is not None else None
    now = dict(files)
    done: list[Finding] = []
    given_up: set[tuple[str, str, str, str]] = set()
    for _ in range(_ROUNDS):
        found = _common(now, contexts, recorded, namer)
        chosen = [each for each in found if each.code in FIXABLE and _key(each) not in given_up]
        if not chosen:
            break
        for name in dict.fromkeys(each.file for each in chosen):
            mine = [each for each in chosen if each.file == name]
            key = next(key for key in now if namer(key) == name)
            made = _fixed_file(now[key], name, mine)
            if made is None or made == now[key]:
                given_up |= {_key(each) for each in mine}
                continue
            again = _common({**now, key: made}, contexts, recorded, namer)
            worse = _errors(again) > _errors(_common(now, contexts, recorded, namer))
            left = {_key(each) for found in _reviews({**now, key: made}, contexts, recorded, namer) for each in found}
            helped = [each for each in mine if _key(each) not in left]
            if worse or not helped:
                given_up |= {_key(each) for each in mine}
                continue
            now[key] = made
            done += helped
            given_up |= {_key(each) for each in mine if each not in helped}
    return Fixed(now, tuple(done))


def _key(finding: Finding) -> tuple[str, str, str, str]:
    return finding.code, finding.file, finding.object, finding.path


def _errors(findings: Iterable[Finding]) -> int:
    return sum(each.severity == "error" for each in findings)


def _common(
    files: Mapping[str, bytes], contexts: Sequence[Context], recorded: Any, namer: Callable[[str], str]
) -> list[Finding]:
    """The findings that hold for every version."""
    several = _reviews(files, contexts, recorded, namer)
    everywhere = set.intersection(*({_key(each) for each in found} for found in several))
    return [each for each in several[0] if _key(each) in everywhere]


def _reviews(
    files: Mapping[str, bytes], contexts: Sequence[Context], recorded: Any, namer: Callable[[str], str]
) -> list[list[Finding]]:
    sources = [source for name, data in files.items() for source in read_bytes(data, namer(name))]
    return [lint(sources, inventory=recorded, context=context) for context in contexts]


def _fixed_file(data: bytes, name: str, findings: Sequence[Finding]) -> bytes | None:
    """One file with the fixes of one round; None if the text cannot take them."""
    sources = read_bytes(data, name)
    text = data.decode("utf-8-sig")
    wanted: dict[int, tuple[Document, Any]] = {}
    for number, source in enumerate(sources):
        mine = [each for each in findings if each.object == source.reference]
        if isinstance(source, Csv):
            for each in mine:
                text = _fixed_line(text, each)
        elif isinstance(source, Document) and mine:
            value = copy.deepcopy(source.value)
            for each in sorted(mine, key=lambda each: each.steps, reverse=True) if _sortable(mine) else mine:
                FIXABLE[each.code](value, each)
            wanted[number] = source, value
    try:
        return (rewrite_file(text, wanted) if wanted else text).encode()
    except (DrakkarError, LookupError):
        return None


def _sortable(findings: Sequence[Finding]) -> bool:
    try:
        sorted(each.steps for each in findings)
    except TypeError:
        return False
    return True


# -- fixes: each changes the value of its document in place --------------------------------------------------------


def _holder(value: Object, steps: Steps) -> Any:
    return value_at(value, steps[:-1])


def _remove(value: Object, finding: Finding) -> None:
    holder, last = _holder(value, finding.steps), finding.steps[-1]
    if isinstance(holder, dict):
        holder.pop(last, None)
    elif isinstance(holder, list) and isinstance(last, int) and last < len(holder):
        holder.pop(last)
    _prune(value, finding.steps[:-1])


def _prune(value: Object, steps: Steps) -> None:
    """Remove a list or mapping that has become empty."""
    if not steps or value_at(value, steps) not in ({}, []):
        return
    holder = _holder(value, steps)
    if isinstance(holder, dict):
        del holder[steps[-1]]


def _replace(value: Object, finding: Finding) -> None:
    holder, last = _holder(value, finding.steps), finding.steps[-1]
    if isinstance(holder, dict) or (isinstance(holder, list) and isinstance(last, int)):
        holder[last] = finding.fix  # type: ignore[index]  # a list by a number, a mapping by a name


def _unwrap_source(value: Object, finding: Finding) -> None:
    entry = _holder(value, finding.steps)
    source = entry.get("source") if isinstance(entry, dict) else None
    if isinstance(source, dict) and len(source) == 1 and not set(source) & set(entry):
        made: Object = {}
        for key, inner in entry.items():
            made |= source if key == "source" else {key: inner}
        entry.clear()
        entry.update(made)


def _mode(value: Object, finding: Finding) -> None:
    request = _holder(value, finding.steps)
    if not isinstance(request, dict):
        return
    written = str(request.get("allocationMode")).lower()
    if written == "all" and "count" not in request:
        request["allocationMode"] = "All"
    elif "count" in written or "exact" in written or "count" in request:
        request["allocationMode"] = "ExactCount"


def _claims_to_container(value: Object, finding: Finding) -> None:
    resources = _holder(value, finding.steps)
    pod = value_at(value, finding.steps[:-2])
    containers = pod.get("containers") if isinstance(pod, dict) else None
    if not isinstance(containers, list) or len(containers) != 1 or not isinstance(resources, dict):
        return
    own = containers[0].setdefault("resources", {})
    if "claims" not in own:
        own["claims"] = resources.pop("claims")
        _prune(value, finding.steps[:-1])


def _unwrap_basic(value: Object, finding: Finding) -> None:
    _lift_basic(_holder(value, finding.steps))


def _lift_basic(device: Any) -> None:
    basic = device.get("basic") if isinstance(device, dict) else None
    if isinstance(basic, dict) and not set(basic) & (set(device) - {"basic"}):
        made: Object = {}
        for key, inner in device.items():
            made |= basic if key == "basic" else {key: inner}
        device.clear()
        device.update(made)


def _wrap(value: Object, finding: Finding) -> None:
    holder = _holder(value, finding.steps)
    bare = holder[finding.steps[-1]]
    if isinstance(bare, str | int | float) and not isinstance(bare, bool):
        holder[finding.steps[-1]] = {"value": str(bare)}


def _under_exactly(value: Object, finding: Finding) -> None:
    _move_under_exactly(_holder(value, finding.steps))


def _move_under_exactly(entry: Any) -> None:
    if not isinstance(entry, dict) or "firstAvailable" in entry:
        return
    known = kubernetes().fields["request"]
    moved = {key: inner for key, inner in entry.items() if key in known}
    inside = entry.get("exactly")
    if not moved or (inside is not None and (not isinstance(inside, dict) or set(inside) & set(moved))):
        return
    made: Object = {}
    for key, inner in entry.items():
        if key not in moved:
            made[key] = inner
        elif "exactly" not in made and inside is None:
            made["exactly"] = moved
    if inside is not None:
        made["exactly"] = {**inside, **moved}
    entry.clear()
    entry.update(made)


def _misplaced(value: Object, finding: Finding) -> None:
    if "belongs under `exactly`" in finding.message:
        _under_exactly(value, finding)


def _api_version(value: Object, finding: Finding) -> None:
    """resource.k8s.io/v1: requests and devices have other shapes than in v1beta1; the rest is the same."""
    old = str(value.get("apiVersion"))
    if finding.fix != "apiVersion: resource.k8s.io/v1" or old.rpartition("/")[2] not in ("v1beta1", "v1beta2"):
        return
    kind = value.get("kind")
    spec: Steps = {"ResourceClaim": ("spec",), "ResourceClaimTemplate": ("spec", "spec")}.get(str(kind), ())
    if kind not in ("ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "ResourceSlice"):
        return
    if old.endswith("v1beta1"):
        for entry in value_at(value, (*spec, "devices", "requests")) or () if spec else ():
            _move_under_exactly(entry)
        for device in value_at(value, ("spec", "devices")) or () if kind == "ResourceSlice" else ():
            _lift_basic(device)
    value["apiVersion"] = "resource.k8s.io/v1"


def _gate(value: Object, finding: Finding) -> None:
    """A gate in a mapping goes; in a comma list only its own part."""
    gate = finding.fix.removeprefix("remove ")
    written = value_at(value, finding.steps)
    if finding.steps[-1] == gate or finding.fix.startswith("remove the setting"):
        _remove(value, finding)
    elif isinstance(written, str) and gate:
        head, sign, listed = written.partition("feature-gates=")
        parts = (listed if sign else head).split(",")
        left = [part for part in parts if part.partition("=")[0].strip() != gate]
        if len(left) == len(parts):
            return
        if left:
            _holder(value, finding.steps)[finding.steps[-1]] = (head + sign if sign else "") + ",".join(left)
        elif sign:
            _remove(value, finding)
        else:
            _remove_argument(value, finding)


def _remove_argument(value: Object, finding: Finding) -> None:
    """The whole argument {name: feature-gates, value: …} whose list is empty now."""
    steps = finding.steps[:-1]
    if isinstance(value_at(value, steps), dict) and steps and isinstance(steps[-1], int):
        del value_at(value, steps[:-1])[steps[-1]]
        _prune(value, steps[:-1])
    else:
        _remove(value, finding)


def _all_devices_variable(value: Object, finding: Finding) -> None:
    entry = value_at(value, finding.steps)
    if isinstance(entry, dict) and entry.get("value") == "all":
        _remove(value, finding)


def _override(value: Object, finding: Finding) -> None:
    del finding
    value["gpuResourcesEnabledOverride"] = True


def _honor_labels(value: Object, finding: Finding) -> None:
    steps = finding.steps if finding.steps[-1] != "honorLabels" else finding.steps[:-1]
    holder = value_at(value, steps)
    if isinstance(holder, dict):
        holder["honorLabels"] = True


def _slice_count(value: Object, finding: Finding) -> None:
    if finding.fix.isdigit():
        _holder(value, finding.steps)[finding.steps[-1]] = int(finding.fix)


def _generation(value: Object, finding: Finding) -> None:
    pool = value_at(value, finding.steps)
    if isinstance(pool, dict) and "generation" not in pool:
        pool["generation"] = 1


FIXABLE: Final[dict[str, Callable[[Object, Finding], None]]] = {
    "pod-claim-source": _unwrap_source,
    "allocation-mode-unknown": _mode,
    "pod-level-claims": _claims_to_container,
    "slice-basic-in-v1": _unwrap_basic,
    "capacity-not-wrapped": _wrap,
    "request-fields-inline": _under_exactly,
    "unknown-field": _misplaced,
    "api-version-not-served": _api_version,
    "gate-locked": _gate,
    "gate-cannot-be-off": _gate,
    "podresources-dra-off": _gate,
    "constraint-unqualified": _replace,
    "runtimeclass-beside-claim": _remove,
    "visible-devices-env": _all_devices_variable,
    "chart-path-wrong": _replace,
    "chart-override-missing": _override,
    "servicemonitor-renames-labels": _honor_labels,
    "slice-count-mismatch": _slice_count,
    "slice-generation-missing": _generation,
    "csv-type": lambda value, finding: None,
    "csv-unit": lambda value, finding: None,
}
"""What can be put right with certainty, and how."""

_CSV_COLUMNS: Final = {"csv-type": 1, "csv-unit": 2}


def _fixed_line(text: str, finding: Finding) -> str:
    """A counter file with one column of one line replaced."""
    if finding.code not in _CSV_COLUMNS or not finding.steps or not finding.fix:
        return text
    lines = text.split("\n")
    number = int(finding.steps[0]) - 1
    columns = re.split(r"(,\s*)", lines[number].rstrip("\r"), maxsplit=2)
    place = _CSV_COLUMNS[finding.code] * 2
    if place < len(columns):
        columns[place] = finding.fix
        lines[number] = "".join(columns) + ("\r" if lines[number].endswith("\r") else "")
    return "\n".join(lines)
