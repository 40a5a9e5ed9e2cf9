"""Recorded incidents under other names, and with files missing: the verdict stays, or says what would decide."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from drakkar.diagnosis.survey import survey
from drakkar.diagnosis.verdict import UNDECIDED
from drakkar.evidence.bundle import load_files

CASES = Path(__file__).parents[2] / "cases" / "diagnosis"
BUNDLES = sorted(path.name for path in CASES.iterdir() if path.is_dir())
ALWAYS = ("objects.yaml", "meta.yaml")


def files_of(name: str) -> dict[str, bytes]:
    folder = CASES / name
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "expect.yaml"
    }


def expected(name: str) -> dict[str, Any]:
    found = yaml.safe_load((CASES / name / "expect.yaml").read_text())
    assert isinstance(found, dict)
    return found


def names_in(files: dict[str, bytes]) -> Iterator[str]:
    """Nodes and namespaces of the bundle: what a customer calls them decides nothing."""
    for obj in yaml.load_all(files["objects.yaml"], Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if obj and obj["kind"] == "Node":
            yield obj["metadata"]["name"]
        elif obj and (obj["metadata"].get("namespace") or "").islower():
            yield obj["metadata"]["namespace"]


@pytest.mark.parametrize("name", BUNDLES)
def test_other_names_get_the_same_verdict(name: str) -> None:
    files = files_of(name)
    kept = {"kube-system", "gpu-operator", "default"}
    names = sorted({word for word in names_in(files) if word not in kept and len(word) > 3}, key=len, reverse=True)
    table = {word: f"x{number}-{word[::-1].strip('-.')}"[:40] for number, word in enumerate(names)}
    pattern = re.compile("|".join(rf"(?<![\w.-]){re.escape(word)}(?![\w-])" for word in names) or r"(?!)")

    def renamed(text: str) -> str:
        return pattern.sub(lambda match: table[match[0]], text)

    other = {renamed(path): renamed(data.decode()).encode() for path, data in files.items()}
    wanted = expected(name)
    found = survey(load_files(other)).verdict
    assert (found.cause, found.boundary) == (wanted["cause"], wanted["boundary"])
    assert found.subject == renamed(wanted["subject"])


def without(files: dict[str, bytes]) -> Iterator[tuple[str, dict[str, bytes]]]:
    """The bundle without one of its files, without one node, and without everything that was captured."""
    extra = [path for path in files if path not in ALWAYS]
    groups = {path: [path] for path in extra}
    for top in ("nodes/", "pods/", "metrics/", "manifests/"):
        groups[top] = [path for path in extra if path.startswith(top)]
    for node in {path.split("/")[1] for path in extra if path.startswith("nodes/")}:
        groups[f"nodes/{node}/"] = [path for path in extra if path.startswith(f"nodes/{node}/")]
    groups["everything"] = extra
    for label, gone in groups.items():
        if gone:
            yield label, {path: data for path, data in files.items() if path not in gone}


@pytest.mark.parametrize("name", BUNDLES)
def test_what_is_missing_makes_no_verdict_wrong(name: str) -> None:
    wanted = expected(name)
    never = set(wanted.get("never") or ()) - {"healthy", UNDECIDED}
    for label, files in without(files_of(name)):
        found = survey(load_files(files))
        named = {entry.finding.cause for entry in found.wrong} | {found.verdict.cause}
        assert not named & never, f"without {label}"


@pytest.mark.parametrize("name", ["12-driver-under-run-nvidia", "19-driver-pod-cannot-unload", "x-cdi-disabled"])
def test_not_enough_evidence_names_the_file_that_would_decide(name: str) -> None:
    files = {path: data for path, data in files_of(name).items() if path in ALWAYS}
    verdict = survey(load_files(files)).verdict
    assert verdict.cause == UNDECIDED
    assert any(re.search(r"(pods|nodes)/[\w.-]+/", item.text) for item in verdict.evidence), verdict.evidence


@pytest.mark.parametrize(
    "words",
    [
        'desc = "error reading server preface: connection reset by peer"',
        'desc = "transport: Error while dialing: dial unix /p/dra.sock: connect: connection refused"',
    ],
)
@pytest.mark.parametrize("name", ["10-no-plugin-on-the-node", "37-bound-to-dead-driver"])
def test_a_plugin_that_left_its_socket_is_gone_as_well(name: str, words: str) -> None:
    """What a kubelet 1.37 says of a driver killed by SIGKILL, until somebody removes the socket."""
    files = files_of(name)
    registered = re.compile(r"DRA driver \S+ is not registered")
    objects = list(yaml.safe_load_all(files["objects.yaml"]))
    events = [one for one in objects if one and registered.search(one.get("message") or "")]
    assert events
    for event in events:
        answer = f"NodePrepareResources: rpc error: code = Unavailable desc = connection error: {words}"
        event["message"] = registered.sub(lambda _, text=answer: text, event["message"])
    files["objects.yaml"] = yaml.safe_dump_all(objects).encode()
    wanted = expected(name)
    found = survey(load_files(files)).verdict
    assert (found.cause, found.boundary) == (wanted["cause"], wanted["boundary"])
    assert "does not answer" in found.sentence
