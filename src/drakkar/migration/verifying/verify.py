"""Both forms tried, and what was found: per template, per quota, per rollout."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from drakkar.kube.apierrors import ApiError
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock, SystemClock
from drakkar.kube.paths import value_at
from drakkar.kube.resources import (
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SERVICE_ACCOUNTS,
    Resource,
    by_name,
)
from drakkar.migration.documents import Document
from drakkar.migration.verifying.expansion import Form, Template, form_of
from drakkar.migration.verifying.fleets import FleetNode, fleet_for, recorded_fleet
from drakkar.migration.verifying.quotas import quota_checks
from drakkar.migration.verifying.sandbox import Sandbox, Trial, decided

__all__ = ["Check", "Verification", "verify"]

Object = dict[str, Any]
NAMESPACE: Final = "default"


@dataclass(frozen=True)
class Check:
    """One thing that was tried: ``devices``, ``quota``, ``rollout`` or ``apply`` of a subject, and how it went.

    `ok` is None where nothing could be compared.
    """

    what: str
    subject: str
    ok: bool | None
    message: str


@dataclass(frozen=True)
class Verification:
    """Everything that was tried."""

    checks: tuple[Check, ...]
    nodes: int
    devices: int

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return all(check.ok is not False for check in self.checks)


@dataclass
class _Outcome:
    """What one form did on its copy."""

    reach: dict[str, dict[str, dict[str, int] | None]]
    admitted: dict[tuple[str, str], int]
    rollouts: dict[str, str]
    problems: dict[str, str]


async def verify(
    old: Sequence[Document],
    new: Sequence[Document],
    sandbox: Sandbox,
    *,
    recorded: Iterable[Mapping[str, Any]] | None = None,
    clock: Clock | None = None,
) -> Verification:
    """Try both forms. `recorded` are the objects of the cluster to copy; without them nodes are made up."""
    clock = clock or SystemClock()
    before, after = form_of(old, NAMESPACE), form_of(new, NAMESPACE)
    objects = [obj for obj in recorded or () if isinstance(obj, dict)]
    fleet = recorded_fleet(objects) if objects else []
    if not any(node.devices for node in fleet):
        fleet = fleet_for([template.demand for template in before.templates])
    classes = _classes(objects, after)
    first = await _try(before, (), fleet, sandbox, clock, old=True)
    second = await _try(after, classes, fleet, sandbox, clock, old=False)
    checks = [*_applied(first, second), *_reached(before, after, first, second), *_quotas(first, second)]
    checks += _rolled(before, after, first, second)
    return Verification(tuple(checks), len(fleet), sum(len(node.devices) for node in fleet))


def _classes(objects: Sequence[Mapping[str, Any]], form: Form) -> list[Object]:
    """The chart's classes, as they are recorded or as the chart has them, and those of the form."""
    from drakkar.drivers.gpu.classes import device_classes

    found = {obj["metadata"]["name"]: obj for obj in device_classes()}
    for obj in objects:
        if obj.get("kind") == "DeviceClass":
            found[str(value_at(obj, ("metadata", "name")))] = {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "DeviceClass",
                "metadata": {"name": value_at(obj, ("metadata", "name"))},
                "spec": copy.deepcopy(obj.get("spec") or {}),
            }
    return list((found | {obj["metadata"]["name"]: obj for obj in form.classes}).values())


# -- trying --------------------------------------------------------------------------------------------------


async def _try(
    form: Form, classes: Sequence[Object], fleet: Sequence[FleetNode], sandbox: Sandbox, clock: Clock, *, old: bool
) -> _Outcome:
    async with sandbox() as client:
        trial = Trial(client, clock)
        outcome = _Outcome({}, {}, {}, {})
        await _furnish(client, clock, form, classes, fleet, outcome, old=old)
        await _probe(trial, form, fleet, outcome, old=old)
        outcome.rollouts = await _roll_out(trial, form, outcome)
        outcome.admitted = await quota_checks(client, clock, form, old=old)
        return outcome


async def _furnish(
    client: Client,
    clock: Clock,
    form: Form,
    classes: Sequence[Object],
    fleet: Sequence[FleetNode],
    outcome: _Outcome,
    *,
    old: bool,
) -> None:
    for obj in (await client.list(DEVICE_CLASSES)).items:
        await client.delete(DEVICE_CLASSES, obj["metadata"]["name"])
    for namespace in sorted(form.namespaces | {NAMESPACE}):
        await _create(
            client, NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}, outcome
        )
    for node in fleet:
        await _create(client, NODES, node.node(old=old), outcome)
        published = None if old else node.slice()
        if published is not None:
            await _create(client, RESOURCE_SLICES, published, outcome)
    for obj in classes:
        await _create(client, DEVICE_CLASSES, obj, outcome)
    await _accounts(client, clock, form.namespaces | {NAMESPACE})
    for obj in form.claims:
        resource = RESOURCE_CLAIM_TEMPLATES if obj["kind"] == "ResourceClaimTemplate" else RESOURCE_CLAIMS
        await _create(client, resource, obj, outcome)


async def _accounts(client: Client, clock: Clock, namespaces: Iterable[str]) -> None:
    """Return when every namespace has its default service account: no pod is admitted before."""
    waiting = set(namespaces)
    deadline = clock.monotonic() + 20
    while waiting and clock.monotonic() < deadline:
        accounts = (await client.list(SERVICE_ACCOUNTS)).items
        waiting -= {obj["metadata"]["namespace"] for obj in accounts if obj["metadata"]["name"] == "default"}
        if waiting:
            await clock.sleep(0.02)


async def _create(client: Client, resource: Any, obj: Mapping[str, Any], outcome: _Outcome) -> bool:
    try:
        await client.create(resource, obj)
    except ApiError as error:
        if not error.already_exists:
            metadata = obj["metadata"]
            outcome.problems[f"{obj['kind']}/{metadata.get('name')}"] = str(error)
            return False
    return True


async def _probe(trial: Trial, form: Form, fleet: Sequence[FleetNode], outcome: _Outcome, *, old: bool) -> None:
    """For every template and every shape of node: does a pod get there, and which devices does it get."""
    shapes = _shapes(fleet)
    for template in form.templates:
        if not template.spec.get("containers"):
            continue
        reach = outcome.reach[template.key] = {}
        pods = []
        for number, node in enumerate(shapes):
            pod = template.pod(f"probe-{number}")
            pod["spec"]["nodeSelector"] = {
                **(pod["spec"].get("nodeSelector") or {}),
                "kubernetes.io/hostname": node.name,
            }
            if old:
                _tolerate(pod)
            own = _Outcome({}, {}, {}, {})
            if await _create(trial.client, PODS, pod, own):
                pods.append((pod["metadata"]["name"], node))
            else:
                outcome.problems[template.key] = next(iter(own.problems.values()))
        found = {pod["metadata"]["name"]: pod for pod in await trial.settle(_all_decided)}
        for name, node in pods:
            pod = found.get(name, {})
            bound = (pod.get("spec") or {}).get("nodeName") == node.name
            reach[node.name] = await _devices(trial.client, pod, node, old=old) if bound else None
        await trial.clear(
            *(trial.client.delete(PODS, name, template.namespace, grace_period_seconds=0) for name, _ in pods)
        )


def _shapes(fleet: Sequence[FleetNode]) -> list[FleetNode]:
    """One node of each kind."""
    found: dict[str, FleetNode] = {}
    for node in fleet:
        labels = sorted((key, value) for key, value in node.labels.items() if value != node.name)
        found.setdefault(repr((labels, node.counts(), node.taints)), node)
    return list(found.values())


def _tolerate(pod: Object) -> None:
    """What the admission plugin ExtendedResourceToleration adds for extended resources."""
    for container in (*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ())):
        for name in value_at(container, ("resources", "limits")) or {}:
            if "/" in str(name):
                pod["spec"].setdefault("tolerations", []).append(
                    {"key": name, "operator": "Exists", "effect": "NoSchedule"}
                )


async def _devices(client: Client, pod: Mapping[str, Any], node: FleetNode, *, old: bool) -> dict[str, int]:
    """What a bound pod has, by what the device plugin calls it: counted from its limits, or from its claims."""
    if old:
        return _counted(pod)
    names = [entry.get("resourceClaimName") for entry in value_at(pod, ("status", "resourceClaimStatuses")) or ()]
    names.append(value_at(pod, ("status", "extendedResourceClaimStatus", "resourceClaimName")))
    published = {str(device.get("name")): device for device in node.devices}
    found: dict[str, int] = {}
    for name in filter(None, names):
        claim = await client.get(RESOURCE_CLAIMS, str(name), pod["metadata"]["namespace"])
        for result in value_at(claim, ("status", "allocation", "devices", "results")) or ():
            resource = node.resource_of(published.get(str(result.get("device")), {}))
            found[resource] = found.get(resource, 0) + 1
    return found


def _counted(pod: Mapping[str, Any]) -> dict[str, int]:
    from drakkar.scheduling.requests import pod_requests

    return {
        name: count for name, count in pod_requests(pod["spec"]).items() if name.startswith("nvidia.com/") and count
    }


# -- rollouts ------------------------------------------------------------------------------------------------


async def _roll_out(trial: Trial, form: Form, outcome: _Outcome) -> dict[str, str]:
    """Apply the built-in workloads one after the other, then change each template: "" where that came to its end."""
    found: dict[str, str] = {}
    for workload in form.workloads:
        resource = by_name(workload["kind"])
        assert resource is not None
        if not await _create(trial.client, resource, workload, outcome):
            continue
        name, namespace = workload["metadata"]["name"], workload["metadata"]["namespace"]
        problem = await _wait(trial, resource, name, namespace)
        if not problem and workload["kind"] != "ReplicaSet":
            change = {"spec": {"template": {"metadata": {"annotations": {"drakkar.dev/verify": "again"}}}}}
            await trial.client.patch(resource, name, change, kind="strategic", namespace=namespace)
            problem = await _wait(trial, resource, name, namespace)
            problem = f"a change of its template does not roll out: {problem}" if problem else ""
        found[_key(workload)] = problem
        await trial.client.delete(resource, name, namespace, propagation_policy="Background")
        await trial.clear()
    return found


async def _wait(trial: Trial, resource: Resource, name: str, namespace: str) -> str:
    """Wait for a workload to be what it wants to be; what it still lacks when nothing moves any more."""

    async def done(pods: list[Object]) -> bool:
        del pods
        return not _unready(await trial.client.get(resource, name, namespace))

    await trial.settle(done)
    return _unready(await trial.client.get(resource, name, namespace))


async def _all_decided(pods: list[Object]) -> bool:
    return all(decided(pod) for pod in pods)


def _unready(obj: Mapping[str, Any]) -> str:
    """How far a workload is from what it wants to be, "" if it is there."""
    status, spec = obj.get("status") or {}, obj.get("spec") or {}
    if status.get("observedGeneration", 0) < obj["metadata"].get("generation", 0):
        return "its controller has not seen it yet"
    if obj["kind"] == "DaemonSet":
        wanted, updated = status.get("desiredNumberScheduled", 0), status.get("updatedNumberScheduled", 0)
        ready = status.get("numberReady", 0)
    else:
        wanted = 1 if spec.get("replicas") is None else spec["replicas"]
        ready = status.get("readyReplicas", 0)
        updated = status.get("updatedReplicas", 0) if obj["kind"] != "ReplicaSet" else wanted
    if ready < wanted:
        return f"{ready} of {wanted} pods are ready"
    if updated < wanted:
        return f"{updated} of {wanted} pods are new"
    left = status.get("replicas", wanted) - wanted
    return f"{left} old pods are left" if left > 0 and obj["kind"] != "DaemonSet" else ""


# -- comparing -----------------------------------------------------------------------------------------------


def _applied(first: _Outcome, second: _Outcome) -> Iterator[Check]:
    for subject, problem in second.problems.items():
        if subject not in first.problems:
            yield Check("apply", subject, False, f"the new form is refused: {problem}")
    for subject, problem in first.problems.items():
        if subject not in second.problems:
            yield Check("apply", subject, None, f"the old form is refused: {problem}")


def _reached(before: Form, after: Form, first: _Outcome, second: _Outcome) -> Iterator[Check]:
    for template in before.templates:
        old, new = first.reach.get(template.key), second.reach.get(template.key)
        if old is None or (not template.demand.resources and new == old):
            continue
        if new is None:
            yield Check("devices", template.key, False, "the new form has no such pods")
            continue
        check = _compared(template, old, new)
        if check.ok is False and _same_spec(template, after):
            said = f"it is as it was, so it stays with the device plugin; {check.message}"
            check = Check("devices", template.key, None, said)
        yield check
    known = {template.key for template in before.templates}
    for template in after.templates:
        if template.key not in known:
            yield Check("devices", template.key, None, "the old form has no such pods")


def _same_spec(template: Template, form: Form) -> bool:
    return any(each.key == template.key and each.spec == template.spec for each in form.templates)


def _compared(
    template: Template, old: dict[str, dict[str, int] | None], new: dict[str, dict[str, int] | None]
) -> Check:
    for node, had in old.items():
        has = new.get(node)
        if had != has:
            said = f"on a node like {node} the old form gets {_shown(had)}, the new one {_shown(has)}"
            return Check("devices", template.key, False, said)
    reached = [devices for devices in old.values() if devices is not None]
    if not reached:
        return Check("devices", template.key, None, "no node can run it in either form")
    return Check(
        "devices",
        template.key,
        True,
        f"{_shown(reached[0])} on {len(reached)} of {len(old)} kinds of nodes in both forms",
    )


def _shown(devices: dict[str, int] | None) -> str:
    if devices is None:
        return "no place"
    return ", ".join(f"{count} × {name or 'another device'}" for name, count in sorted(devices.items())) or "no device"


def _quotas(first: _Outcome, second: _Outcome) -> Iterator[Check]:
    for (namespace, resource), admitted in sorted(first.admitted.items()):
        subject = f"{namespace}: {resource}"
        now = second.admitted.get((namespace, resource))
        if now is None:
            yield Check("quota", subject, False, f"the old form admits {admitted}, the new one has no such limit")
        else:
            yield Check("quota", subject, admitted == now, f"the old form admits {admitted}, the new one {now}")


def _rolled(before: Form, after: Form, first: _Outcome, second: _Outcome) -> Iterator[Check]:
    changed = {_key(workload) for workload in after.workloads if workload not in before.workloads}
    for subject, problem in second.rollouts.items():
        if not problem:
            yield Check("rollout", subject, True, "applies, and a change of its template rolls out")
        elif first.rollouts.get(subject):
            yield Check("rollout", subject, None, f"in both forms: {problem}")
        elif subject not in changed:
            yield Check("rollout", subject, None, f"it is as it was, and stays with the device plugin: {problem}")
        else:
            yield Check("rollout", subject, False, f"{problem}; the old form came to its end")


def _key(workload: Mapping[str, Any]) -> str:
    return f"{workload['metadata']['namespace']}/{workload['kind']}/{workload['metadata']['name']}"
