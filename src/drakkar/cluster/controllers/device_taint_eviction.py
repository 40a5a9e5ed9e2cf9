"""Pods leave devices that must not be used any longer: NoExecute taints of drivers and of DeviceTaintRules (KEP-5055).

Each rule's status tells what it did, what it still has to do, or, with effect None, what it would do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from drakkar.cluster.controllers import conditions, pods
from drakkar.cluster.controllers.claim_templates import claims_of_pod
from drakkar.cluster.controllers.controller import Context, Controller, Key, Object, key_of
from drakkar.cluster.controllers.evictions import delete_pod, mark_disrupted
from drakkar.kube.apierrors import ApiError
from drakkar.kube.resources import DEVICE_TAINT_RULES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from drakkar.scheduling.device_taints import seconds_left, selects

CONDITION = "EvictionInProgress"
_REASON, _MESSAGE = "DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint"
Device = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Pressure:
    """One taint that drives a pod off, in how many seconds, and the UID of the rule it comes from."""

    seconds: float
    rule: str


class DeviceTaintEviction(Controller):
    """Keys are ("pod", namespace, name) and ("rule", "", name)."""

    name = "device-taint-eviction-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._recorder = context.recorder(self.name)
        self._evicted: dict[str, int] = {}
        self._counted: dict[str, int] = {}
        self._rules = self.watch(DEVICE_TAINT_RULES, self._on_rule)
        self._slices = self.watch(RESOURCE_SLICES, self._on_slice)
        self._slices.add_index("pool", lambda one: [(one["spec"]["driver"], one["spec"]["pool"]["name"])])
        self._claims = self.watch(RESOURCE_CLAIMS, self._on_claim)
        self._claims.add_index("device", lambda one: list(_devices(one)))
        self._pods = self.watch(PODS, self._on_pod)
        self._pods.add_index("claim", claims_of_pod)

    # Events

    def _on_rule(self, kind: str, old: Object | None, new: Object | None) -> None:
        rule = new or old
        if rule is None:
            return
        if new is None:
            self._evicted.pop(rule["metadata"]["uid"], None)
            self._counted.pop(rule["metadata"]["uid"], None)
        else:
            self.queue.add(("rule", "", rule["metadata"]["name"]))
        if old is None or new is None or old.get("spec") != new.get("spec"):
            for claim in self._claims.list():
                if any(selects(one, *device) for one in (old, new) if one for device in _devices(claim)):
                    self._look_at(claim)

    def _on_slice(self, kind: str, old: Object | None, new: Object | None) -> None:
        before, after = _tainted(old), _tainted(new)
        for device in before.keys() | after.keys():
            if before.get(device) != after.get(device):
                for claim in self._claims.by_index("device", device):
                    self._look_at(claim)

    def _on_claim(self, kind: str, old: Object | None, new: Object | None) -> None:
        if new is not None and any(_devices(new)):
            self._look_at(new)

    def _on_pod(self, kind: str, old: Object | None, new: Object | None) -> None:
        pod = new or old
        if pod is None or not (pod.get("spec") or {}).get("resourceClaims"):
            return
        if new is not None and (old is None or old["spec"].get("nodeName") != new["spec"].get("nodeName")):
            self.queue.add(("pod", *key_of(new)))
        if new is None or pods.is_deleting(new):
            self._refresh_rules()

    def _look_at(self, claim: Object) -> None:
        for pod in self._pods.by_index("claim", key_of(claim)):
            self.queue.add(("pod", *key_of(pod)))

    def _refresh_rules(self) -> None:
        for rule in self._rules.list():
            if rule["spec"]["taint"]["effect"] == "NoExecute":
                self.queue.add(("rule", "", rule["metadata"]["name"]))

    async def reconcile(self, key: tuple[str, str, str]) -> float | None:
        kind, namespace, name = key
        if kind == "rule":
            rule = self._rules.get(None, name)
            if rule is not None:
                await self._report(rule)
            return None
        pod = self._pods.get(namespace, name)
        if pod is None or pods.is_deleting(pod) or pods.is_finished(pod):
            return None
        pressures = list(self._pressures(pod))
        if not pressures:
            return None
        self._refresh_rules()
        soonest = min(one.seconds for one in pressures)
        if soonest > 0:
            return soonest
        await self._evict(pod, {one.rule for one in pressures if one.rule and one.seconds <= 0})
        return None

    async def _evict(self, pod: Object, rules: set[str]) -> None:
        try:
            await mark_disrupted(self.client, self.clock, pod, _REASON, _MESSAGE, observed=False)
        except ApiError as error:
            if error.not_found or error.conflict:
                return
            raise
        if not await delete_pod(self.client, pod):
            return
        about = {**pod, "apiVersion": "v1", "kind": "Pod"}
        self._recorder.record(about, "Normal", "DeviceTaintManagerEviction", "Marking for deletion")
        for uid in sorted(rules):
            self._evicted[uid] = self._evicted.get(uid, 0) + 1
        self._refresh_rules()

    # What taints mean for pods

    def _pressures(self, pod: Object) -> Iterator[_Pressure]:
        """The NoExecute taints that drive this pod off sooner or later."""
        if not (pod.get("spec") or {}).get("nodeName"):
            return
        now = self.clock.now()
        for claim in self._claims_used_by(pod):
            for result in claim["status"]["allocation"]["devices"]["results"]:
                device = result["driver"], result["pool"], result["device"]
                for taint, rule in self._taints_of(device):
                    if taint.get("effect") == "NoExecute":
                        seconds = seconds_left(taint, result.get("tolerations") or (), now)
                        if seconds is not None:
                            yield _Pressure(seconds, rule)

    def _claims_used_by(self, pod: Object) -> Iterator[Object]:
        uid = pod["metadata"]["uid"]
        for key in claims_of_pod(pod):
            claim = self._claims.get(*key)
            status = (claim or {}).get("status") or {}
            if (
                claim
                and status.get("allocation")
                and any(one.get("uid") == uid for one in status.get("reservedFor") or ())
            ):
                yield claim

    def _taints_of(self, device: Device) -> Iterator[tuple[Object, str]]:
        """The taints of a device, and the UID of the rule for those that come from one."""
        driver, pool, name = device
        for piece in self._slices.by_index("pool", (driver, pool)):
            for one in piece["spec"].get("devices") or ():
                if one["name"] == name:
                    for taint in one.get("taints") or ():
                        yield taint, ""
        for rule in self._rules.list():
            if selects(rule, driver, pool, name):
                yield rule["spec"]["taint"], rule["metadata"]["uid"]

    # Rule status

    async def _report(self, rule: Object) -> None:
        effect = rule["spec"]["taint"]["effect"]
        generation = rule["metadata"].get("generation") or 1
        listed = (rule.get("status") or {}).get("conditions") or []
        before = conditions.find(listed, CONDITION)
        if effect == "None" and before is not None and before.get("observedGeneration") == generation:
            return  # said once for each version of the rule
        status, reason, message = self._finding(rule, effect)
        fresh = conditions.put(listed, CONDITION, status, reason=reason, message=message, now=self.clock.now())
        fresh = [one if one["type"] != CONDITION else {**one, "observedGeneration": generation} for one in fresh]
        if fresh == listed:
            return
        try:
            await self.client.update(
                DEVICE_TAINT_RULES, {**rule, "status": {**(rule.get("status") or {}), "conditions": fresh}},
                subresource="status",
            )  # fmt: skip
        except ApiError as error:
            if not error.not_found:
                raise

    def _finding(self, rule: Object, effect: str) -> tuple[bool, str, str]:
        if effect == "None":
            return False, "NoEffect", self._preview(rule)
        if effect != "NoExecute":
            return False, "OtherEffect", "Eviction only happens for the NoExecute effect."
        done = self._evicted.get(rule["metadata"]["uid"], 0)
        past = f"{_pods(done)} evicted since starting the controller." if done else ""
        waiting = self._pods_of(rule, evicting=True)
        if waiting:
            need = "needs" if len(waiting) == 1 else "need"
            text = f"{_pods(len(waiting))} {need} to be evicted in {_spaces(waiting)}. {past}"
            return True, "PodsPendingEviction", text.rstrip()
        return False, "Completed" if done else "NotStarted", past

    def _preview(self, rule: Object) -> str:
        published = {
            (piece["spec"]["driver"], piece["spec"]["pool"]["name"], one["name"])
            for piece in self._slices.list()
            for one in piece["spec"].get("devices") or ()
        }
        allocated = {device for claim in self._claims.list() for device in _devices(claim)}
        selected = sum(selects(rule, *device) for device in published)
        in_use = sum(selects(rule, *device) for device in allocated)
        concerned = self._pods_of(rule, evicting=False)
        return (
            f"{selected} published device{_s(selected)} selected. {in_use} allocated device{_s(in_use)} selected. "
            f"{_pods(len(concerned))} would be evicted in {_spaces(concerned)} if the effect was NoExecute. "
            "This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
        )

    def _pods_of(self, rule: Object, *, evicting: bool) -> set[Key]:
        """The pods that the rule concerns: those it still has to evict, or those it would evict."""
        found = set()
        taint = {**rule["spec"]["taint"], "effect": "NoExecute"}
        for claim in self._claims.list():
            results = [
                one
                for one in (((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}).get("results")
                or ()
                if selects(rule, one["driver"], one["pool"], one["device"])
                and seconds_left(taint, one.get("tolerations") or (), self.clock.now()) is not None
            ]
            if not results:
                continue
            for pod in self._pods.by_index("claim", key_of(claim)):
                placed = (pod.get("spec") or {}).get("nodeName") and not pods.is_finished(pod)
                if placed and claim in self._claims_used_by(pod) and not (evicting and pods.is_deleting(pod)):
                    found.add(key_of(pod))
        return found


def _devices(claim: Object) -> Iterator[Device]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    for one in (allocation.get("devices") or {}).get("results") or ():
        yield one["driver"], one["pool"], one["device"]


def _tainted(piece: Object | None) -> dict[Device, list[Object]]:
    if piece is None:
        return {}
    spec = piece["spec"]
    return {
        (spec["driver"], spec["pool"]["name"], one["name"]): one["taints"]
        for one in spec.get("devices") or ()
        if one.get("taints")
    }


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _pods(count: int) -> str:
    return f"{count} pod{_s(count)}"


def _spaces(found: set[Key]) -> str:
    count = len({namespace for namespace, _ in found})
    return "1 namespace" if count == 1 else f"{count} different namespaces"
