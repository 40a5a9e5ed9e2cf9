"""Why a node cannot make a claim ready: what the kubelet and the driver answered, and what the node shows.

The kubelet's event carries the driver's own words. A table maps the known ones to causes; each is checked against the
objects and captures before it is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final

from drakkar.diagnosis.situation import ClaimUse, Situation, affected, condition, ready
from drakkar.diagnosis.verdict import UNDECIDED, Evidence, Finding
from drakkar.evidence.snapshot import (
    event_time,
    message_of,
    name_of,
    namespace_of,
    parse_time,
    reference,
    uid_of,
)

__all__ = ["unprepared"]

Object = dict[str, Any]
Detector = Callable[[Situation, Object, list[ClaimUse], Object, re.Match[str]], Finding | None]

_DEATH_WINDOW: Final = timedelta(seconds=60)  # the kubelet withdraws slices 30 s after the plugin is gone


def unprepared(situation: Situation, pod: Object, uses: list[ClaimUse]) -> Iterator[Finding]:
    """What the last failed preparation of a bound pod means."""
    failures = situation.snapshot.events_of(pod, "FailedPrepareDynamicResources")
    if not failures or _started(pod):
        return
    texts = {message_of(event): event for event in failures}  # the newest event of each wording
    newest = max(texts, key=lambda text: event_time(texts[text]))
    for pattern, detect in _ANSWERS:
        for text in reversed(list(texts)):
            match = pattern.search(text) if detect not in _OF_THE_MOMENT or text == newest else None
            if match is None:
                continue
            found = detect(situation, pod, uses, texts[text], match)
            if found is not None:
                yield found
                return
    yield from _other_boot(situation, pod, uses, failures[-1])
    last = failures[-1]
    node = (pod.get("spec") or {}).get("nodeName", "")
    yield Finding(
        UNDECIDED,
        reference(pod),
        f"node {node} cannot prepare the claims of pod {name_of(pod)}: {_core(message_of(last))}",
        (*_evidence(situation, pod, last), *_missing_log(situation, node)),
        f"kubectl logs of the driver's node plugin on {node}; its log decides",
        "possible",
        affects=affected(situation.snapshot, pod),
        boundary="preparation",
    )


def _missing_log(situation: Situation, node: str) -> list[Evidence]:
    """The log that would decide, if it was not captured."""
    plugins = situation.plugin_pods(node)
    if any(True for plugin in plugins for _ in situation.snapshot.logs_of(plugin)):
        return []
    names = [f"pods/{namespace_of(plugin)}/{name_of(plugin)}/" for plugin in plugins]
    return [Evidence(f"missing: {', '.join(names) or f'nodes/{node}/journal.txt'}")]


def _not_registered(
    situation: Situation, pod: Object, uses: list[ClaimUse], event: Object, match: re.Match[str]
) -> Finding | None:
    node = (pod.get("spec") or {}).get("nodeName", "")
    sentence = f"the kubelet of {node} knows no DRA driver {match[1]}: no ready plugin of it runs there"
    return _plugin_gone(situation, pod, uses, event, match[1], "is not registered", sentence)


def _not_answering(
    situation: Situation, pod: Object, uses: list[ClaimUse], event: Object, match: re.Match[str]
) -> Finding | None:
    """A killed plugin: its sockets stay, so the kubelet keeps it registered and calls it in vain."""
    del match
    node = (pod.get("spec") or {}).get("nodeName", "")
    allocated = (((use.claim or {}).get("status") or {}).get("allocation") or {} for use in uses)
    results = (one for each in allocated for one in (each.get("devices") or {}).get("results") or ())
    for driver in dict.fromkeys(one.get("driver", "") for one in results):
        found = _plugin_gone(
            situation, pod, uses, event, driver, "does not answer",
            f"DRA driver {driver} does not answer the kubelet of {node}: it is registered, nobody serves its socket",
        )  # fmt: skip
        if found is not None:
            return found
    return None


def _plugin_gone(
    situation: Situation, pod: Object, uses: list[ClaimUse], event: Object, driver: str, state: str, sentence: str
) -> Finding | None:
    node = (pod.get("spec") or {}).get("nodeName", "")
    evidence = list(_evidence(situation, pod, event))
    plugins = [plugin for plugin in situation.plugin_pods(node) if _serves(situation, plugin, driver)]
    if any(ready(plugin) for plugin in plugins):
        return None
    for plugin in plugins:
        evidence.append(
            Evidence(f"plugin pod {name_of(plugin)} on {node} is not ready: {_waiting(plugin)}", reference(plugin))
        )
    if not plugins and situation.plugin_pods():
        evidence.append(Evidence(f"no plugin pod of {driver} runs on node {node}", f"Node/{node}"))
    others = sorted({(p.get("spec") or {}).get("nodeName", "") for p in situation.plugin_pods() if ready(p)} - {""})
    if others:
        evidence.append(Evidence(f"the driver is ready on {', '.join(others)}"))
    capture = situation.snapshot.nodes.get(node)
    if capture is not None:
        for line in [
            *capture.journal_lines("Unregistered DRA plugin", driver),
            *capture.journal_lines("Deleted ResourceSlices"),
        ][-2:]:
            evidence.append(Evidence(line.strip(), f"{node} journal.txt"))
    death = _death_before_allocation(situation, node, uses)
    if death is not None:
        when, text = death
        allocated = next((_allocated_at(use) for use in uses if _allocated_at(use)), "")
        evidence.append(Evidence(f"{text} at {when}; the claim was allocated at {allocated}"))
        return Finding(
            "plugin-died-after-allocation",
            reference(pod),
            f"pod {name_of(pod)} was bound to {node} while a dead plugin's slices were still there: DRA driver {driver}"
            f" {state} on {node} since {when}",
            tuple(evidence),
            f"bring the plugin on {node} back, or delete pod {name_of(pod)} so that it is scheduled anew",
            affects=affected(situation.snapshot, pod) | {f"Node/{node}"},
        )
    return Finding(
        "plugin-not-registered",
        reference(pod),
        sentence,
        tuple(evidence),
        f"bring the driver on {node} back (its node plugin, or the process that serves it); the kubelet then retries",
        affects=affected(situation.snapshot, pod) | {f"Node/{node}"},
    )


def _other_boot(situation: Situation, pod: Object, uses: list[ClaimUse], event: Object) -> Iterator[Finding]:
    """The driver's checkpoint holds the claim from before the node's last boot."""
    node = (pod.get("spec") or {}).get("nodeName", "")
    capture = situation.snapshot.nodes.get(node)
    running = ((situation.snapshot.get("Node", node) or {}).get("status") or {}).get("nodeInfo", {}).get("bootID", "")
    recorded = capture.driver_boot if capture is not None else ""
    held = [use.claim_name for use in uses if capture is not None and uid_of(use.claim or {}) in capture.driver_claims]
    if not recorded or not running or recorded == running or not held:
        return
    yield Finding(
        "prepared-state-stale",
        reference(pod),
        f"the driver on {node} believes that {', '.join(held)} is prepared, from before the node's last boot",
        (
            *_evidence(situation, pod, event),
            Evidence(f"checkpoint of boot {recorded}", f"{node} checkpoint.json"),
            Evidence(f"node runs boot {running}", f"Node/{node} status.nodeInfo.bootID"),
        ),
        f"restart the driver's plugin on {node}; if it keeps the claim, move its checkpoint aside",
        affects=affected(situation.snapshot, pod),
    )


def _replaced(
    situation: Situation, pod: Object, uses: list[ClaimUse], event: Object, match: re.Match[str]
) -> Finding | None:
    name, old = match.groups()
    node = (pod.get("spec") or {}).get("nodeName", "")
    evidence = list(_evidence(situation, pod, event))
    current = next((use.claim for use in uses if use.claim_name == name and use.claim), None)
    if current is not None:
        evidence.append(Evidence(f"claim {name} now has UID {uid_of(current)}", reference(current)))
    capture = situation.snapshot.nodes.get(node)
    for held in (capture.prepared_claims or ()) if capture is not None else ():
        if held.uid == old:
            evidence.append(
                Evidence(
                    f"kubelet of {node} still holds {old} for pod UID {', '.join(held.pods)}",
                    f"{node} dra_manager_state",
                )
            )
    for line in (capture.journal_lines("KillContainer") if capture is not None else [])[-1:]:
        evidence.append(Evidence(line.strip(), f"{node} journal.txt"))
    return Finding(
        "claim-replaced",
        reference(pod),
        f"node {node} still holds the former claim {name} (UID {old}), whose pod has not ended there",
        tuple(evidence),
        f"end the former pod's containers on {node} (crictl ps, crictl stop); the kubelet then releases the claim",
        affects=affected(situation.snapshot, pod),
    )


def _simple(cause: str, sentence: str, next_step: str, *, confidence: str = "certain") -> Detector:
    """A detector whose sentence is filled with pod, node, claim and the driver's words."""

    def detect(
        situation: Situation, pod: Object, uses: list[ClaimUse], event: Object, match: re.Match[str]
    ) -> Finding | None:
        node = (pod.get("spec") or {}).get("nodeName", "")
        claim = next((use for use in uses if use.claim_name and use.claim_name in message_of(event)), None)
        label = claim.claim_name if claim else ", ".join(use.claim_name for use in uses)
        devices = ", ".join(_device_names(uses))
        fields = {
            "pod": name_of(pod),
            "node": node,
            "claim": label,
            "words": _core(message_of(event)),
            "devices": devices,
        }
        evidence = list(_evidence(situation, pod, event))
        evidence.append(
            Evidence(f"claim {label} was given {devices} on {node}", reference((claim and claim.claim) or pod))
        )
        for use in uses:
            evidence += _configurations(use)
        evidence += _plugin_log(situation, node, uses)
        return Finding(
            cause, reference(pod), sentence.format(**fields), tuple(evidence), next_step.format(**fields), confidence,
            affects=affected(situation.snapshot, pod), boundary="preparation" if cause == UNDECIDED else "",
        )  # fmt: skip

    return detect


_OF_THE_MOMENT: Final = frozenset({_not_registered, _not_answering})
"""What counts only while it is the newest answer: a plugin may have come back since."""

_ANSWERS: Final[tuple[tuple[re.Pattern[str], Detector], ...]] = (
    (
        re.compile(r"no relationship found between node"),
        _simple(
            UNDECIDED,
            "the API server did not let the kubelet of {node} read claim {claim}: its node authorizer had not seen the"
            " pod yet; the driver was not asked, and the kubelet comes back within 90 s",
            "wait, or delete the pod; chart value rbac.kubeletsReadClaims (on by default) keeps it from happening",
            confidence="possible",
        ),
    ),
    (re.compile(r"DRA driver (\S+) is not registered"), _not_registered),
    (re.compile(r"Node(?:Prepare|Unprepare)Resources: rpc error: code = Unavailable desc = "), _not_answering),
    (re.compile(r"old ResourceClaim with same name (\S+) and different UID (\S+) still exists"), _replaced),
    (
        re.compile(r"error getting Compute instance profile info for '([^']+)': Not Supported"),
        _simple(
            "mig-profile-defect",
            "the driver on {node} cannot make {devices} for claim {claim}: {words}",
            "ask for a full GPU or another profile; see the driver's known defects for this profile",
        ),
    ),
    (
        re.compile(
            r"strict decoding error|unknown field|error decoding config|invalid (?:opaque )?config|no kind \""
            r"|opaque\.parameters",
            re.I,
        ),
        _simple(
            "config-rejected",
            "the driver on {node} does not accept the configuration of claim {claim}: {words}",
            "correct spec.devices.config of the claim's template (kubectl explain does not know opaque parameters)",
        ),
    ),
    (
        re.compile(r"FindMigDevBySpecTuple|deleteMigDevIfExists|In use by another client|leftover MIG", re.I),
        _simple(
            "mig-orphan-instance",
            "a half-made MIG instance on {node} blocks claim {claim}: {words}",
            "nvidia-smi mig -lgi; nvidia-smi mig -lci; destroy the instance that no claim owns",
        ),
    ),
    (
        re.compile(r"(?:MIG|device)[^:]*(?:does not exist|not found|no longer exists|is not allocatable)", re.I),
        _simple(
            "mig-shape-gone",
            "the device {devices} that claim {claim} was given no longer exists on {node}: {words}",
            "restart the driver's plugin on {node} so that it publishes what is there, then recreate the pod",
        ),
    ),
    (
        re.compile(r"MPS control daemon|control daemon.*not ready|failed to start MPS|sharing .*not ready", re.I),
        _simple(
            "sharing-helper-not-ready",
            "the sharing helper for claim {claim} did not become ready on {node}: {words}",
            "kubectl get pods -A -o wide | grep mps; look at the control daemon's log on {node}",
        ),
    ),
    (
        re.compile(r"code = Unimplemented|unknown service|unknown method", re.I),
        _simple(
            "api-version-skew",
            "kubelet and driver on {node} do not speak the same DRA version: {words}",
            "upgrade the driver, or the kubelet, so that both serve dra.v1 or dra.v1beta1",
        ),
    ),
    (
        re.compile(r"boot ?ID|stale checkpoint|already prepared", re.I),
        _simple(
            "prepared-state-stale",
            "the driver on {node} believes that claim {claim} is prepared, from before a reboot: {words}",
            "restart the driver's plugin on {node}; its journal then forgets the former boot",
        ),
    ),
    (
        re.compile(r"GPU is lost|fallen off the bus|GPU_IS_LOST|device .* is gone|Unknown Error", re.I),
        _simple(
            "device-missing",
            "{devices} of claim {claim} is gone from {node}: {words}",
            "dmesg on {node} for XID 79; cordon the node, reset or replace the GPU",
        ),
    ),
)


def _evidence(situation: Situation, pod: Object, event: Object) -> tuple[Evidence, ...]:
    count = event.get("count") or (event.get("series") or {}).get("count") or 1
    times = f", {count} times, last at {event_time(event)}" if count > 1 else f", at {event_time(event)}"
    return (Evidence(message_of(event), f"event FailedPrepareDynamicResources of {reference(pod)}{times}"),)


def _core(text: str) -> str:
    """The driver's own words, without the kubelet's wrapping."""
    return text.rpartition("prepare dynamic resources: ")[2] or text


def _device_names(uses: list[ClaimUse]) -> list[str]:
    return [
        result.get("device", "")
        for use in uses
        for result in ((use.allocation or {}).get("devices") or {}).get("results") or ()
    ]


def _configurations(use: ClaimUse) -> list[Evidence]:
    found = []
    for number, entry in enumerate(use.devices.get("config") or ()):
        opaque = entry.get("opaque") or {}
        found.append(
            Evidence(
                f"configuration for {opaque.get('driver', '')}: {opaque.get('parameters')}",
                f"{reference(use.claim or use.template or {})} spec.devices.config[{number}]",
            )
        )
    return found


def _plugin_log(situation: Situation, node: str, uses: list[ClaimUse]) -> list[Evidence]:
    """The newest error line about the claims in the plugin's log on that node."""
    names = [word for use in uses for word in (use.claim_name, uid_of(use.claim or {})) if word]
    for plugin in situation.plugin_pods(node):
        for key, text in situation.snapshot.logs_of(plugin):
            lines = [line for line in text.splitlines() if any(name in line for name in names) and "rror" in line]
            if lines:
                return [Evidence(lines[-1].strip(), f"log of {key.pod}/{key.container}")]
    return []


def _serves(situation: Situation, plugin: Object, driver: str) -> bool:
    """Whether a plugin pod can be the driver's: GPUs and compute domains share one pod in NVIDIA's driver."""
    names = {container.get("name", "") for container in (plugin.get("spec") or {}).get("containers") or ()}
    if driver == "compute-domain.nvidia.com":
        return "compute-domains" in names or not names & {"gpus"}
    return True


def _waiting(pod: Object) -> str:
    statuses = [
        *((pod.get("status") or {}).get("initContainerStatuses") or ()),
        *((pod.get("status") or {}).get("containerStatuses") or ()),
    ]
    for status in statuses:
        waiting = (status.get("state") or {}).get("waiting")
        if waiting:
            return f"{status.get('name')} {waiting.get('reason', '')} {waiting.get('message', '')}".strip()
    return (condition(pod, "Ready") or {}).get("message") or (pod.get("status") or {}).get("phase") or "unknown"


def _death_before_allocation(situation: Situation, node: str, uses: list[ClaimUse]) -> tuple[str, str] | None:
    """When the plugin on the node ended shortly before the claim was allocated there: (time, what shows it)."""
    times = [moment for use in uses if (moment := parse_time(_allocated_at(use))) is not None]
    if not times:
        return None
    for event in situation.snapshot.events:
        about = event.get("involvedObject") or {}
        host = (event.get("source") or {}).get("host") or event.get("reportingInstance")
        ended = parse_time(event_time(event))
        if (
            event.get("reason") != "Killing"
            or host != node
            or "kubelet-plugin" not in about.get("name", "")
            or not ended
        ):
            continue
        if any(timedelta(0) <= moment - ended <= _DEATH_WINDOW for moment in times):
            return event_time(event), f"plugin pod {about.get('name')} was stopped"
    return None


def _allocated_at(use: ClaimUse) -> str:
    return str((use.allocation or {}).get("allocationTimestamp") or "")


def _started(pod: Object) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return any((status.get("state") or {}).get("running") for status in statuses)
