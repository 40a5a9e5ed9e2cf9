"""A fleet as data: which machines stand where, what runs on them, and what breaks when.

One YAML file says what a rehearsal needs, so that it can be reviewed, repeated and shared. It is read strictly, as
Kubernetes reads manifests (:mod:`drakkar.kube.yamltext`): a field nobody knows is an error that names its path, since
a fault that is silently left out would make a test pass for no reason.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from drakkar.cluster.autoscaler.options import NodeGroup, Settings
from drakkar.cluster.autoscaler.provider import initial_nodes
from drakkar.cluster.fleet_fields import (
    MAX_NODES,
    RACK_LABEL,
    ZONE_LABEL,
    Field,
    label_word,
    labels_of,
    model_of,
    taint_of,
)
from drakkar.cluster.fleet_groups import read_groups, read_settings
from drakkar.cluster.requests import NodeRequest
from drakkar.errors import DrakkarError
from drakkar.evidence.snapshot import Manifest
from drakkar.kube import names, yamltext

if TYPE_CHECKING:
    from drakkar.cluster.behaviours import Rule

__all__ = ["RACK_LABEL", "ZONE_LABEL", "Fleet", "TimedFault", "read_fleet"]

_MAX_BYTES: Final = 8 << 20
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_PADDED: Final = re.compile(r"index(?::0?([1-9]))?")
_PLACEHOLDERS: Final = "{model}, {index} ({index:03} has three digits), {zone} and {rack}"
_ARGUMENT_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "gpu": (int,),
    "code": (int,),
    "profile": (str,),
    "version": (str,),
    "seconds": (int, float),
    "group": (str,),
}
_TYPE_WORDS: Final = {int: "a whole number", float: "a number", str: "a text"}

ManifestReader = Callable[[Iterable[str]], Sequence[Manifest]]


@dataclass(frozen=True, slots=True)
class TimedFault:
    """A fault that will happen `after` seconds; `arguments` as `drakkar.cluster.faults.inject` takes them."""

    after: float
    fault: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fleet:
    """What a fleet file says: nodes and workloads in its order, faults by time, groups with their autoscaler.

    `behaviours` are for simulated containers; `seed` is what chance is drawn from: where time is simulated, and how
    machines of groups are made.
    """

    nodes: tuple[NodeRequest, ...] = ()
    workloads: tuple[Manifest, ...] = ()
    faults: tuple[TimedFault, ...] = ()
    groups: tuple[NodeGroup, ...] = ()
    autoscaler: Settings = field(default_factory=Settings)
    behaviours: tuple[Rule, ...] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True)
class _Place:
    zone: str = ""
    rack: str = ""


def read_fleet(file: Path, *, manifests: ManifestReader, others: Iterable[str] = ()) -> Fleet:
    """The fleet in `file`.

    Args:
        manifests: reads the manifests in files and folders that ``workloads`` names.
        others: names of nodes that the cluster will have beside those of the file.

    Raises `DrakkarError`; its subject is the file with the path of the field (``fleet.yaml: nodes[0].model``).
    """
    root = Field(str(file), "", _load(file))
    known = root.mapping(
        "nodes, groups, workloads and faults",
        ("nodes", "groups", "autoscaler", "workloads", "faults", "behaviours", "seed"),
    )
    nodes = _Nodes(others)
    for group in known["nodes"].items("a list of groups of nodes"):
        nodes.add(group)
    workloads = [one for field in known["workloads"].items("a list of files and objects")
                 for one in _workloads(field, file, manifests)]  # fmt: skip
    groups = read_groups(known["groups"])
    if not groups and known["autoscaler"].value is not None:
        known["autoscaler"].wrong("there is nothing to scale", "groups")
    for request in initial_nodes(groups, nodes.places):
        nodes.places[request.name] = _Place(request.labels.get(ZONE_LABEL, ""), request.labels.get(RACK_LABEL, ""))
    faults = [one for field in known["faults"].items("a list of faults") for one in _faults(field, nodes, groups)]
    return Fleet(
        nodes=tuple(nodes.requests),
        workloads=tuple(workloads),
        faults=tuple(sorted(faults, key=lambda fault: fault.after)),
        groups=tuple(groups),
        autoscaler=read_settings(known["autoscaler"]),
        behaviours=tuple(_rule(field) for field in known["behaviours"].items("a list of behaviours of containers")),
        seed=_seed(known["seed"]),
    )


def _load(file: Path) -> Any:
    try:
        with file.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise DrakkarError(
            f"cannot read {file}: {error.strerror or error}", reason="Unreadable", subject=str(file)
        ) from None
    if len(data) > _MAX_BYTES:
        raise DrakkarError(
            f"{file} is larger than a fleet file may be", reason="TooLarge", subject=str(file),
            expected=f"at most {_MAX_BYTES >> 20} MiB",
        )  # fmt: skip
    try:
        return yamltext.load(data)
    except yamltext.YamlError as error:
        where = f"{file}:{error.line}" if error.line else str(file)
        raise DrakkarError(f"{where}: {error.problem}", reason="InvalidYaml", subject=where) from None


class _Nodes:
    """The nodes found so far, and where each stands."""

    def __init__(self, others: Iterable[str]) -> None:
        self.requests: list[NodeRequest] = []
        self.places: dict[str, _Place] = {name: _Place() for name in others}
        self._of_model: Counter[str] = Counter()

    def add(self, group: Field) -> None:
        fields = group.mapping(
            "a group of nodes: model, count, …", ("model", "count", "name", "labels", "taints", "zones", "racks")
        )
        model = model_of(fields["model"])
        count = fields["count"].count(1)
        pattern = fields["name"].text("a pattern such as gpu-{rack}-{index}") if fields["name"].value else ""
        places = _places(fields["zones"], fields["racks"])
        taints = tuple(taint_of(field) for field in fields["taints"].items("a list of taints"))
        if len(self.requests) + count > MAX_NODES:
            fields["count"].wrong("a fleet has too many nodes", f"at most {MAX_NODES}")
        for index in range(count):
            place = places[index * len(places) // count]  # a rack is filled before the next
            number = index if pattern else self._of_model[model] + index
            words = {"model": model, "index": number, "zone": place.zone, "rack": place.rack}
            name = _filled(fields["name"], pattern or "{model}-{index}", words)
            for complaint in names.dns_subdomain(name):
                fields["name"].wrong(f"{name!r} cannot be the name of a node", complaint)
            if name in self.places:
                fields["name"].wrong(f"a second node {name!r}", "a pattern with {index}, other than those before")
            self.places[name] = place
            self.requests.append(NodeRequest(name, model, _labels(fields["labels"], words, place), taints))
        if not pattern:
            self._of_model[model] += count


def _places(zones: Field, racks: Field) -> list[_Place]:
    """Where the nodes of a group may stand, in order."""
    if not isinstance(zones.value, dict):
        in_zones = [label_word(zone) for zone in zones.items("a list of zones, or racks by zone")]
        in_racks = [label_word(rack) for rack in racks.items("a list of racks")]
        if in_zones and in_racks:
            racks.wrong("which rack stands in which zone is not said", "zones: {zone-a: [rack-1, rack-2], zone-b: …}")
        return [_Place(zone) for zone in in_zones] or [_Place("", rack) for rack in in_racks] or [_Place()]
    if racks.value is not None:
        racks.wrong("racks are named twice", "racks below the zones, or a list of racks without zones")
    found = []
    for zone, value in zones.value.items():
        below = zones.child(zone, value)
        label_word(below, zone)
        rows = [label_word(rack) for rack in below.items("a list of racks")]
        found += [_Place(zone, rack) for rack in rows] or [_Place(zone)]
    return found or [_Place()]


def _labels(field: Field, words: Mapping[str, Any], place: _Place) -> dict[str, str]:
    found = {ZONE_LABEL: place.zone, RACK_LABEL: place.rack}
    labels = {key: value for key, value in found.items() if value}
    return labels | labels_of(field, lambda below, value: _filled(below, value, words))


def _filled(field: Field, pattern: str, words: Mapping[str, Any]) -> str:
    def word(match: re.Match[str]) -> str:
        padded = _PADDED.fullmatch(match[1])
        if padded:
            return str(words["index"]).zfill(int(padded[1] or 1))
        if match[1] not in words:
            field.wrong(f"unknown placeholder {match[0]}", _PLACEHOLDERS)
        if not words[match[1]]:
            field.wrong(f"{match[0]} is not known", f"{match[1]}s of the group")
        return str(words[match[1]])

    return _PLACEHOLDER.sub(word, pattern)


def _workloads(field: Field, file: Path, manifests: ManifestReader) -> Iterator[Manifest]:
    """A file or folder beside the fleet file, or an object as it stands."""
    if isinstance(field.value, str):
        yield from manifests([str(file.parent / field.text("a file"))])
        return
    if not isinstance(field.value, dict):
        field.wrong("neither a file nor an object", "a path, or an object with apiVersion, kind and metadata")
    for key in ("apiVersion", "kind"):
        field.child(key, field.value.get(key)).text(f"the {key} of the object")
    yield Manifest(f"{field.file}: {field.path}", 0, field.value)


def _rule(field: Field) -> Rule:
    """How simulated containers behave, and which ones."""
    from drakkar.cluster.behaviours import FIELDS, Rule, behaviour

    who = ("labels", "namespace", "container")
    fields = field.mapping("labels, namespace, container; runs, exitCode, …", (*who, *FIELDS))
    labels = fields["labels"].value or {}
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        fields["labels"].wrong("the labels of a pod are texts by key", "labels: {app: train}")
    if all(fields[name].value is None for name in FIELDS):
        field.wrong("nothing is said of how it behaves", "one of " + ", ".join(FIELDS))
    try:
        said = behaviour({name: fields[name].value for name in FIELDS})
    except ValueError as error:
        name, _, problem = str(error).partition(": ")
        fields[name].wrong(problem)
    names_of = {name: fields[name].text(f"the name of a {name}") for name in who[1:] if fields[name].value is not None}
    return Rule(said, labels, **names_of)


def _seed(field: Field) -> int:
    if field.value is None:
        return 0
    if isinstance(field.value, bool) or not isinstance(field.value, int) or not 0 <= field.value < 2**63:
        field.wrong("no number to draw from", "a whole number, 0 or more")
    return field.value


def _faults(field: Field, nodes: _Nodes, groups: Iterable[NodeGroup]) -> Iterator[TimedFault]:
    """One fault, or one for each node of a rack or zone."""
    from drakkar.cluster.faults import FAULTS, ClusterFault

    where = ("node", "rack", "zone")
    fields = field.mapping("after, fault, node and what the fault needs", ("after", "fault", *where, *_ARGUMENT_TYPES))
    after, name = fields["after"].seconds(), fields["fault"].text("the name of a fault; `drakkar fault` lists them")
    fault = FAULTS.get(name)
    if fault is None:
        near = difflib.get_close_matches(name, FAULTS, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        fields["fault"].wrong(f"unknown fault {name!r}{hint}", "one of " + ", ".join(FAULTS))
    arguments = {key: fields[key].value for key in _ARGUMENT_TYPES if fields[key].value is not None}
    for key in fault.needs:
        if key not in arguments:
            field.wrong(f"{name} needs {key}", " and ".join(fault.needs))
    for key, value in arguments.items():
        types = _ARGUMENT_TYPES[key]
        if key not in (*fault.needs, *fault.takes):
            fields[key].wrong(f"{name} takes no {key}", ", ".join((*fault.needs, *fault.takes)) or "no arguments")
        if isinstance(value, bool) or not isinstance(value, types):
            fields[key].wrong(f"{value!r} is not what {name} takes", _TYPE_WORDS[types[-1]])
    names_of_groups = [group.name for group in groups]
    if "group" in arguments and arguments["group"] not in names_of_groups:
        fields["group"].wrong(
            f"there is no group {arguments['group']!r}",
            f"one of {', '.join(names_of_groups) or 'the groups of this file'}",
        )
    given = [key for key in where if fields[key].value is not None]
    if isinstance(fault, ClusterFault):
        if given:
            fields[given[0]].wrong(f"{name} is a fault of the whole cluster", "no node")
        yield TimedFault(after, name, arguments)
        return
    if len(given) != 1:
        field.wrong(f"where {name} happens is not said" if not given else "too many places", "node, rack or zone")
    wanted = fields[given[0]].text(f"the name of a {given[0]}")
    hit = [node for node, place in nodes.places.items()
           if wanted == (node if given[0] == "node" else getattr(place, given[0]))]  # fmt: skip
    if not hit:
        known = sorted({node if given[0] == "node" else getattr(place, given[0])
                        for node, place in nodes.places.items()} - {""})  # fmt: skip
        shown = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
        fields[given[0]].wrong(
            f"there is no {given[0]} {wanted!r}", f"one of {shown}" if known else f"a {given[0]} of the groups above"
        )
    for node in hit:
        yield TimedFault(after, name, {"node": node, **arguments})
