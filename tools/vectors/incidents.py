"""Incidents made live: what to break on a running embedded cluster, and the verdict that must come of it.

The format is described in ``cases/incidents/README.md``. All incidents of a folder share one cluster; each has a
namespace of its own, and is undone before the next: its faults are taken back, its objects deleted, and nodes, devices
and classes must be what they were. A case passes when cause, boundary and subject are right, every evidence text is
quoted, and no ``never`` code is named in it.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from drakkar.diagnosis import render
from drakkar.diagnosis.explain import explain
from drakkar.diagnosis.survey import survey
from drakkar.diagnosis.verdict import Verdict
from drakkar.errors import DrakkarError
from drakkar.evidence.snapshot import Snapshot, message_of
from drakkar.kube import resources
from drakkar.kube.apierrors import ApiError
from drakkar.kube.client import Client
from drakkar.kube.https import HttpsTransport
from drakkar.kube.kubeconfig import load as load_kubeconfig
from drakkar.kube.resources import Resource
from drakkar.testing.clusters import EmbeddedCluster
from tools.vectors import Outcome, difference

DEFAULT = "cases/incidents"
NODES: Final = {"h100": "dgx-h100", "t4": "t4", "a100": "a100-40gb"}
PATIENCE = 30.0
_LOOK_AGAIN: Final = 0.1
_WIDE: Final = 1_000_000
_MORE: Final = (
    Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False),
    Resource("resource.nvidia.com", "v1beta1", "computedomains", "ComputeDomain"),
)
_KINDS: Final = {resource.kind: resource for resource in (*resources.ALL, *_MORE)}
_MAKERS: Final = ("Deployment", "Job", "StatefulSet", "ReplicaSet", "DaemonSet")
_LASTING: Final = frozenset({"CustomResourceDefinition"})

Object = dict[str, Any]


def run(folder: Path) -> Iterator[Outcome]:
    """Every incident of a folder, on one cluster."""
    with Stage() as stage:
        for path in sorted(folder.glob("*.yaml")):
            yield Outcome(path.stem, stage.play(path.stem, yaml.safe_load(path.read_text())))


class Stage:
    """A cluster with one node of each model, on which incidents are played one after the other."""

    def __init__(self) -> None:
        self._cluster = EmbeddedCluster()
        self._client: Client
        self._loop = asyncio.new_event_loop()
        self._baseline: Object = {}

    def __enter__(self) -> Stage:
        self._cluster.__enter__()
        for name, model in NODES.items():
            self._cluster.add_node(model, name)
        self._client = Client(HttpsTransport(load_kubeconfig(self._cluster.kubeconfig)))
        self._baseline = self._standing()
        return self

    def __exit__(self, *failure: Any) -> None:
        self._do(self._client.close())
        self._loop.close()
        self._cluster.__exit__(*failure)

    def play(self, name: str, incident: Object) -> list[str]:
        """Breaks what the incident says, and what differs from its expectation; the stage is as before afterwards."""
        namespace = name
        made: list[Object] = []
        try:
            self._create(_object("Namespace", namespace, labels=incident.get("labels")))
            self._settled(namespace)
            for step in incident.get("steps") or ():
                self._step(step, namespace, made)
            return self._judged(incident, namespace)
        except (DrakkarError, AssertionError) as error:
            return [f"raised {type(error).__name__}: {error}"]
        finally:
            self._undo(incident, namespace, made)

    def _settled(self, namespace: str) -> None:
        """Until the namespace has its service account, without which no pod is admitted."""
        end = time.monotonic() + PATIENCE
        while not self._do(self._client.list(resources.SERVICE_ACCOUNTS, namespace)).items:
            assert time.monotonic() < end, f"namespace {namespace} has no service account"
            time.sleep(_LOOK_AGAIN)

    def _step(self, step: Object, namespace: str, made: list[Object]) -> None:
        ((verb, what),) = step.items()
        match verb:
            case "apply":
                for obj in what if isinstance(what, list) else [what]:
                    made.append(self._create(_placed(obj, namespace)))
            case "fault":
                self._fault(what)
            case "scale":
                self._cluster.scale(what["groups"], what.get("autoscaler"))
            case "retry":
                self._retry(what, namespace, made)
            case "wait":
                self._wait(what, namespace)
            case "patch":
                resource, name = _target(what["target"])
                space = namespace if resource.namespaced else None
                self._do(
                    self._client.patch(
                        resource, name, _filled(what["body"], self._ids(namespace)), namespace=space,
                        subresource=what.get("subresource", ""),
                    )
                )  # fmt: skip
            case "delete":
                resource, name = _target(what)
                self._do(self._client.delete(resource, name, namespace if resource.namespaced else None))
            case _:
                raise AssertionError(f"unknown step {verb!r}")

    def _retry(self, step: Object, namespace: str, made: list[Object]) -> None:
        """A step until the server takes it, as people do when it answers 503."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self._step(step, namespace, made)
                return
            except DrakkarError:
                if time.monotonic() > end:
                    raise
                time.sleep(_LOOK_AGAIN)

    def _fault(self, text: str) -> None:
        name, *words = text.split()
        node = next((word for word in words if "=" not in word), "")
        arguments = {key: _number(value) for key, equals, value in (word.partition("=") for word in words) if equals}
        self._cluster.fault(name, node, **arguments)

    def _wait(self, wanted: Object, namespace: str) -> None:
        """Until it is so: ``{pod: p, phase: Running}``, ``{event: reason}``, ``{taint: key}`` and so on."""
        if "served" in wanted:
            self._served(wanted["served"])
            return
        self._until(lambda snapshot: _there(snapshot, wanted, namespace), f"wait {wanted}")

    def _served(self, plural: str) -> None:
        """Until the server has a custom resource."""
        resource = next(resource for resource in _MORE if resource.plural == plural)
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self._do(self._client.list(resource))
                return
            except ApiError:
                if time.monotonic() > end:
                    raise
                time.sleep(_LOOK_AGAIN)

    def _until(self, holds: Any, what: str) -> Snapshot:
        end = time.monotonic() + PATIENCE
        while True:
            snapshot = self._cluster.snapshot()
            if holds(snapshot):
                return snapshot
            assert time.monotonic() < end, f"{what} did not come true in {PATIENCE:g} s"
            time.sleep(_LOOK_AGAIN)

    def _judged(self, incident: Object, namespace: str) -> list[str]:
        """Asks until the answer is right twice in a row, or patience ends: the last answer counts."""
        wanted = incident["expect"]
        end = time.monotonic() + float(incident.get("patience", PATIENCE))
        right = 0
        while True:
            snapshot = self._cluster.snapshot()
            found = list(_differences(_verdict(snapshot, incident, namespace), wanted, namespace))
            right = 0 if found else right + 1
            if right > 1 or time.monotonic() > end:
                return found
            time.sleep(_LOOK_AGAIN)

    def _undo(self, incident: Object, namespace: str, made: list[Object]) -> None:
        for fault in incident.get("undo") or ():
            try:
                self._step({"fault": fault} if isinstance(fault, str) else fault, namespace, [])
            except DrakkarError as error:
                if error.reason != "NotKilled":  # a step before it failed, and the driver runs
                    raise
        if any("scale" in step for step in incident.get("steps") or ()):
            self._cluster.end_scaling()
        for obj in sorted(made, key=lambda obj: obj["kind"] not in _MAKERS):
            if obj["kind"] not in _LASTING:
                self._forget(obj)
        pods = self._do(self._client.list(resources.PODS, namespace)).items
        for pod in pods:
            self._forget({**pod, "kind": "Pod"})
        end = time.monotonic() + 2 * PATIENCE
        while self._standing(namespace) != self._baseline:
            assert time.monotonic() < end, f"{namespace} left {self._standing(namespace)}, not {self._baseline}"
            time.sleep(_LOOK_AGAIN)

    def _forget(self, obj: Object) -> None:
        resource = _KINDS[obj["kind"]]
        space = obj["metadata"].get("namespace") if resource.namespaced else None
        grace = 0 if obj["kind"] == "Pod" else None
        try:
            self._do(self._client.delete(resource, obj["metadata"]["name"], space, grace_period_seconds=grace))
        except ApiError as error:
            if error.status != 404:
                raise

    def _standing(self, namespace: str = "") -> Object:
        """What must be as before: devices without taints, labels of nodes, and nothing in the namespace."""
        snapshot = self._cluster.snapshot()
        devices: dict[str, list[str]] = {}
        for piece in snapshot.all("ResourceSlice"):
            for device in piece["spec"].get("devices") or ():
                taints = "tainted" if device.get("taints") else ""
                devices.setdefault(str(piece["spec"].get("nodeName")), []).append(f"{device['name']}{taints}")
        nodes = {
            node["metadata"]["name"]: (node["metadata"].get("labels"), bool(node["spec"].get("taints")),
                                       node["spec"].get("unschedulable"))
            for node in snapshot.all("Node")
        }  # fmt: skip
        left = [obj["metadata"]["name"] for kind in ("Pod", "ResourceClaim") for obj in snapshot.all(kind, namespace)]
        ready = all(
            condition["status"] == "True"
            for node in snapshot.all("Node")
            for condition in node["status"]["conditions"]
            if condition["type"] == "Ready"
        )
        return {"devices": devices, "nodes": nodes, "left": left if namespace else [], "ready": ready}

    def _ids(self, namespace: str) -> dict[str, str]:
        snapshot = self._cluster.snapshot()
        return {
            f"uid of {obj['kind'].lower()}/{obj['metadata']['name']}": obj["metadata"]["uid"]
            for obj in (*snapshot.all("Pod", namespace), *snapshot.all("ResourceClaim", namespace))
        }

    def _create(self, obj: Object) -> Object:
        resource = _KINDS[obj["kind"]]
        try:
            self._do(self._client.create(resource, obj))
        except ApiError as error:
            if not (error.already_exists and obj["kind"] in _LASTING):
                raise
        return obj

    def _do(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)


def _verdict(snapshot: Snapshot, incident: Object, namespace: str) -> Verdict:
    target = incident.get("target")
    if target:
        return explain(snapshot, target, namespace=namespace)
    return survey(snapshot).verdict


def _differences(verdict: Verdict, wanted: Object, namespace: str) -> Iterator[str]:
    subject = str(wanted["subject"]).replace("$namespace", namespace)
    yield from difference("cause", wanted["cause"], verdict.cause)
    yield from difference("boundary", wanted["boundary"], verdict.boundary)
    yield from difference("subject", subject, verdict.subject)
    explanation = " ".join(render.text(verdict, width=_WIDE).split())
    for text in wanted.get("evidence") or ():
        if " ".join(str(text).split()) not in explanation:
            yield f"evidence: wanted {text!r}, got an explanation without it: {explanation[:300]}"
    for code in wanted.get("never") or ():
        if code in explanation:
            yield f"never: wanted no {code}, got an explanation that names it"


def _there(snapshot: Snapshot, wanted: Object, namespace: str) -> bool:
    if "pod" in wanted:
        pod = snapshot.get("Pod", wanted["pod"], namespace)
        if pod is None:
            return False
        if "phase" in wanted and (pod.get("status") or {}).get("phase") != wanted["phase"]:
            return False
        return not wanted.get("bound") or bool((pod.get("spec") or {}).get("nodeName"))
    if "running" in wanted:
        key, _, value = wanted["running"].partition("=")
        pods = [p for p in snapshot.all("Pod", namespace) if (p["metadata"].get("labels") or {}).get(key) == value]
        return sum((pod.get("status") or {}).get("phase") == "Running" for pod in pods) == wanted["count"]
    if "published" in wanted:
        pieces = [p for p in snapshot.all("ResourceSlice") if p["spec"].get("nodeName") == wanted["node"]]
        types = [d["attributes"]["type"]["string"] for p in pieces for d in p["spec"].get("devices") or ()]
        return wanted["published"] in types
    if "claim" in wanted:
        claim = snapshot.get("ResourceClaim", wanted["claim"], namespace)
        return claim is not None and bool((claim.get("status") or {}).get("allocation")) == wanted.get(
            "allocated", True
        )
    if "event" in wanted:
        events = [event for event in snapshot.events if event["metadata"].get("namespace") == namespace]
        return any(
            event.get("reason") == wanted["event"] and str(wanted.get("text", "")) in message_of(event)
            for event in events
        )
    if "devices" in wanted:
        pieces = [p for p in snapshot.all("ResourceSlice") if p["spec"].get("nodeName") == wanted["devices"]]
        return sum(len(piece["spec"].get("devices") or ()) for piece in pieces) == wanted["count"]
    if "taint" in wanted:
        devices = [d for piece in snapshot.all("ResourceSlice") for d in piece["spec"].get("devices") or ()]
        return any(taint["key"] == wanted["taint"] for device in devices for taint in device.get("taints") or ())
    if "prepared" in wanted:
        return any(
            claim.namespace == namespace
            for capture in snapshot.nodes.values()
            for claim in capture.prepared_claims or ()
            if capture.cdi_files
        )
    raise AssertionError(f"nobody knows how to wait for {wanted}")


def _placed(obj: Object, namespace: str) -> Object:
    placed = copy.deepcopy(obj)
    resource = _KINDS[placed["kind"]]
    placed.setdefault("apiVersion", resource.api_version)
    if resource.namespaced:
        placed["metadata"].setdefault("namespace", namespace)
    return placed


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _object(kind: str, name: str, labels: Object | None = None) -> Object:
    metadata: Object = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": _KINDS[kind].api_version, "kind": kind, "metadata": metadata}


def _target(text: str) -> tuple[Resource, str]:
    kind, _, name = text.partition("/")
    resource = next((r for r in _KINDS.values() if kind.lower() in (r.kind.lower(), r.plural, *r.short_names)), None)
    assert resource is not None, f"{text!r} names no kind that is known here"
    return resource, name


def _filled(value: Any, names: dict[str, str]) -> Any:
    """`$(uid of pod/x)` in texts becomes that UID."""
    if isinstance(value, dict):
        return {key: _filled(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, names) for item in value]
    if isinstance(value, str):
        for name, uid in names.items():
            value = value.replace(f"$({name})", uid)
    return value
