"""Dividing a node's GPUs into static MIG instances, as a state machine that can be trusted with running pods.

pending → success or failed, in the node labels of NVIDIA's MIG manager (`nvidia.com/mig.config`, `.state`), with the
reason of a failure in an annotation. Four things are different from it: a node without the label is left alone; a claim
or pod that holds what would go is named and nothing is touched; a division that fails half way is taken back; and
success means that the driver's ResourceSlices show the new devices, not only that the hardware has them. While the
hardware changes a DeviceTaintRule keeps new claims away, so that none is allocated what is about to go.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from drakkar.errors import DrakkarError
from drakkar.kube.apierrors import ApiError
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock, SystemClock
from drakkar.kube.resources import DEVICE_TAINT_RULES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from drakkar.vendors.nvidia import layouts, published
from drakkar.vendors.nvidia.layouts import GpuPlan, Rule, Step
from drakkar.vendors.nvidia.machine import NvidiaMachine
from drakkar.vendors.nvidia.published import DRIVER

_log = logging.getLogger(__name__)

CONFIG_LABEL, STATE_LABEL = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
REASON_ANNOTATION = "drakkar.dev/mig.config.reason"
TAINT_KEY = "drakkar.dev/mig-reconfiguring"

_SLICES_SECONDS = 30.0
_LOOK_SECONDS = 0.1
_MINOR = re.compile(r"^gpu-(\d+)(?:-mig-(.+))?$")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a reconfiguration: `state` is success or failed, `reason` says why it failed."""

    state: str
    plans: tuple[GpuPlan, ...]
    reason: str = ""
    holders: tuple[str, ...] = ()
    done: tuple[Step, ...] = field(default=())


class Reconfiguration:
    """Brings the GPUs of `machine`, node `node_name`, to a layout.

    Without a client (`client` None) nobody is asked who holds what and no slices are waited for: for a node outside any
    cluster. `progress` hears one line per step.
    """

    def __init__(
        self,
        machine: NvidiaMachine,
        client: Client | None,
        node_name: str,
        *,
        clock: Clock | None = None,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._machine, self._client, self._node_name = machine, client, node_name
        self._clock = clock or SystemClock()
        self._progress = progress

    def plan(self, rules: Sequence[Rule]) -> list[GpuPlan]:
        """What would change. Raises `DrakkarError` where the layout is impossible on these GPUs."""
        self._machine.poll()
        gpus = self._machine.devices()
        if not gpus:
            raise DrakkarError("there is no GPU to divide", reason="NoGpu", subject=self._node_name)
        return layouts.plan(gpus, rules)

    async def apply(self, rules: Sequence[Rule]) -> Outcome:
        """Do it. A refusal or a failure is an outcome, not an exception; raises `ApiError` if the API fails us."""
        try:
            plans = self.plan(rules)
        except DrakkarError as error:
            return await self._end(Outcome("failed", (), _sentence(error)))
        steps = [step for plan in plans for step in plan.steps]
        if steps:
            await self._mark("pending", "")
        async with contextlib.AsyncExitStack() as stack:
            if steps and self._client is not None:
                await self._keep_new_claims_away(self._client, {plan.gpu for plan in plans if plan.steps}, stack)
                holders = await self._holders(self._client, plans)
                if holders:
                    reason = "what would go is in use by " + ", ".join(holders)
                    return await self._end(Outcome("failed", tuple(plans), reason, tuple(holders)))
            done: list[Step] = []
            try:
                for step in steps:
                    self._progress(str(step))
                    self._do(step)
                    done.append(step)
            except (DrakkarError, OSError) as error:
                reason = f"{step}: {_sentence(error)}; " + self._take_back(done)
                return await self._end(Outcome("failed", tuple(plans), reason))
            return await self._end(await self._verified(plans, tuple(done)))

    # --- the hardware -----------------------------------------------------------------------------------------------

    def _do(self, step: Step) -> None:
        match step.action:
            case "enable" | "disable":
                self._machine.set_mig_mode(step.gpu, step.action == "enable")
            case "create":
                self._machine.create_mig(step.gpu, step.profile, step.start)
            case "destroy":
                self._machine.destroy_mig(step.gpu, self._instance(step))

    def _take_back(self, done: Sequence[Step]) -> str:
        inverse = {"enable": "disable", "disable": "enable", "create": "destroy", "destroy": "create"}
        try:
            for step in reversed(done):
                self._progress(f"taking back: {step}")
                self._do(Step(step.gpu, inverse[step.action], step.profile, step.start))
        except (DrakkarError, OSError) as error:
            return f"taking back what was done failed as well at {step}: {_sentence(error)}"
        return "everything is as it was before"

    def _instance(self, step: Step) -> int:
        gpu = self._machine.devices()[step.gpu]
        for one in gpu.mig_instances:
            if one.start == step.start and one.profile.name == step.profile:
                return one.gpu_instance
        raise DrakkarError(f"GPU {step.gpu} has no instance {step.profile} at {step.start}", reason="NotFound")

    # --- the cluster ------------------------------------------------------------------------------------------------

    async def _holders(self, client: Client, plans: Sequence[GpuPlan]) -> list[str]:
        """Claims that hold a device which would go, and pods that got theirs from a device plugin."""
        going = self._going(plans)
        found = []
        for claim in (await client.list(RESOURCE_CLAIMS)).items:
            for result in ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results") or ():
                if (result["driver"], result["pool"], result["device"]) in going:
                    name = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
                    found.append(f"claim {name} ({result['device']})")
        selector = f"spec.nodeName={self._node_name}"
        for pod in (await client.list(PODS, field_selector=selector)).items:
            if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
                continue
            for resource in sorted(_extended(pod)):
                name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
                found.append(f"pod {name} ({resource} from a device plugin)")
        return found

    def _going(self, plans: Sequence[GpuPlan]) -> set[tuple[str, str, str]]:
        """The published devices that the plans take away: destroyed instances, whole GPUs that are divided."""
        gpus = {gpu.index: gpu for gpu in self._machine.devices()}
        going = set()
        for plan in plans:
            gpu = gpus[plan.gpu]
            for step in plan.steps:
                if step.action == "destroy":
                    instance = next(one for one in gpu.mig_instances if one.start == step.start)
                    going.add(published.mig_device_name(gpu, instance))
            if plan.steps and plan.enabled:
                going.add(published.gpu_device_name(gpu))
        return {(DRIVER, self._node_name, name) for name in going}

    async def _keep_new_claims_away(self, client: Client, gpus: set[int], stack: contextlib.AsyncExitStack) -> None:
        minors = {gpu.minor for gpu in self._machine.devices() if gpu.index in gpus}
        names = [
            device["name"]
            for device in await self._published(client)
            if (match := _MINOR.match(device["name"])) and int(match[1]) in minors
        ]
        for name in names:
            rule = {
                "apiVersion": DEVICE_TAINT_RULES.api_version,
                "kind": DEVICE_TAINT_RULES.kind,
                "metadata": {"name": (rule_name := f"drakkar-mig-{self._node_name}-{name}")},
                "spec": {
                    "deviceSelector": {"driver": DRIVER, "pool": self._node_name, "device": name},
                    "taint": {"key": TAINT_KEY, "effect": "NoSchedule"},
                },
            }
            try:
                await client.create(DEVICE_TAINT_RULES, rule)
            except ApiError as error:
                if error.not_found or error.status == 403:
                    _log.warning("no DeviceTaintRule keeps new claims away meanwhile: %s", error)
                    return
                if not error.already_exists:  # of an attempt that was killed: it serves us as well
                    raise
            stack.push_async_callback(self._remove_rule, client, rule_name)

    async def _remove_rule(self, client: Client, name: str) -> None:
        try:
            await client.delete(DEVICE_TAINT_RULES, name)
        except ApiError as error:
            if not error.not_found:
                raise

    async def _verified(self, plans: Sequence[GpuPlan], done: tuple[Step, ...]) -> Outcome:
        """Success when hardware and slices are as wanted; the hardware stays when only the slices do not follow."""
        self._machine.poll()
        for plan in plans:
            gpu = self._machine.devices()[plan.gpu]
            now = layouts.present(gpu)
            if plan.enabled is not None and (now != plan.wanted or (gpu.mig_enabled and not plan.enabled)):
                return Outcome("failed", tuple(plans), f"GPU {plan.gpu} has {now}, not {dict(plan.wanted)}", done=done)
        if self._client is None:
            return Outcome("success", tuple(plans), done=done)
        deadline = self._clock.monotonic() + _SLICES_SECONDS
        while missing := await self._not_shown(self._client, plans):
            if self._clock.monotonic() > deadline:
                reason = (
                    f"the GPUs are divided, but within {_SLICES_SECONDS:.0f} s the ResourceSlices of {DRIVER} on"
                    f" {self._node_name} did not follow: {missing}"
                )
                return Outcome("failed", tuple(plans), reason, done=done)
            await self._clock.sleep(_LOOK_SECONDS)
        return Outcome("success", tuple(plans), done=done)

    async def _not_shown(self, client: Client, plans: Sequence[GpuPlan]) -> str:
        """What the slices lack or still show, in words; empty when they are right. No slices at all is right, too:
        there is no DRA driver on the node.
        """
        shown = {device["name"] for device in await self._published(client)}
        if not shown:
            return ""
        minors = {self._machine.devices()[plan.gpu].minor for plan in plans if plan.enabled is not None}
        wanted = set()
        for gpu in self._machine.devices():
            if gpu.minor in minors:
                instances = {published.mig_device_name(gpu, one) for one in gpu.mig_instances}
                wanted |= instances if gpu.mig_enabled else {published.gpu_device_name(gpu)}
        present = {name for name in shown if (match := _MINOR.match(name)) and int(match[1]) in minors}
        words = [f"no {name}" for name in sorted(wanted - present)] + [f"still {x}" for x in sorted(present - wanted)]
        return ", ".join(words)

    async def _published(self, client: Client) -> list[Mapping[str, Any]]:
        selector = f"spec.driver={DRIVER},spec.nodeName={self._node_name}"
        found = (await client.list(RESOURCE_SLICES, field_selector=selector)).items
        return [device for one in found for device in one["spec"].get("devices") or ()]

    # --- the node's labels ------------------------------------------------------------------------------------------

    async def _end(self, outcome: Outcome) -> Outcome:
        await self._mark(outcome.state, outcome.reason)
        return outcome

    async def _mark(self, state: str, reason: str) -> None:
        """Set the state label of a node that has the config label; nothing is written on others."""
        if self._client is None:
            return
        node = await self._client.get(NODES, self._node_name)
        labels = node["metadata"].get("labels") or {}
        annotations = node["metadata"].get("annotations") or {}
        if CONFIG_LABEL not in labels:
            return
        if labels.get(STATE_LABEL) == state and annotations.get(REASON_ANNOTATION, "") == reason:
            return
        change = {"labels": {STATE_LABEL: state}, "annotations": {REASON_ANNOTATION: reason or None}}
        await self._client.patch(NODES, self._node_name, {"metadata": change})

    async def wanted(self) -> str | None:
        """The layout that the node's label names; None without a label, or without a cluster."""
        if self._client is None:
            return None
        node = await self._client.get(NODES, self._node_name)
        return (node["metadata"].get("labels") or {}).get(CONFIG_LABEL)

    async def follow(self, known: Mapping[str, Sequence[Rule]]) -> None:
        """Do what the node's label says, now and at every change, until cancelled; a missing label means nothing."""
        assert self._client is not None
        last: str | None = None
        while True:
            with contextlib.suppress(ApiError, OSError):
                name = await self.wanted()
                if name is not None and name != last:
                    self._progress(f"{CONFIG_LABEL}={name}")
                    outcome = await self._follow_once(name, known)
                    self._progress(outcome.state + (f": {outcome.reason}" if outcome.reason else ""))
                last = name
            await self._clock.sleep(1.0)

    async def _follow_once(self, name: str, known: Mapping[str, Sequence[Rule]]) -> Outcome:
        rules = known.get(name)
        if rules is None:
            reason = f"there is no layout {name!r}; known are {', '.join(sorted(known))}"
            return await self._end(Outcome("failed", (), reason))
        return await self.apply(rules)


def _extended(pod: Mapping[str, Any]) -> set[str]:
    """The extended resources of NVIDIA that the pod has from a device plugin; DRA serves some, and then by a claim."""
    served = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    by_claim = {mapping["resourceName"] for mapping in served.get("requestMappings") or ()}
    containers = [*(pod["spec"].get("initContainers") or ()), *(pod["spec"].get("containers") or ())]
    return {
        name
        for container in containers
        for name in (container.get("resources") or {}).get("limits") or {}
        if name.startswith("nvidia.com/") and name not in by_claim
    }


def _sentence(error: Exception) -> str:
    if not isinstance(error, DrakkarError):
        return str(error)
    return error.message + (f" (expected {error.expected})" if error.expected else "")
