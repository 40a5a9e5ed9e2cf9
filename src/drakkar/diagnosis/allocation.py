"""Why a claim has no devices, from the devices themselves: selectors, taints, holders, capacity, constraints, nodes.

Each request is followed through a funnel over all published devices; what the funnel cannot tell (counters, shares,
constraints) the allocator itself decides on the recorded objects, once with and once without the part in question.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from drakkar.allocation import AllocationError, allocate
from drakkar.diagnosis.funnel import Funnel, Request, device_values, funnel_of, lookup, references, requests_of, shown
from drakkar.diagnosis.refused import answers_for, as_claim, finding_of, label_of
from drakkar.diagnosis.situation import ClaimUse, Published, Situation, affected, owner_chain
from drakkar.diagnosis.verdict import Evidence, Finding
from drakkar.errors import DrakkarError
from drakkar.evidence.records import pods_of_claim
from drakkar.evidence.snapshot import message_of, name_of, namespace_of, reference
from drakkar.kube.quantity import Quantity

__all__ = ["unallocated", "with_changes"]

Object = dict[str, Any]
_SHOWN: Final = 4


def unallocated(situation: Situation, pod: Object, uses: list[ClaimUse]) -> Iterator[Finding]:
    """What keeps the first claim without allocation from getting its devices."""
    answers = answers_for(situation, pod, uses)
    if answers.fits:
        return
    refusals = situation.refusals(pod)
    for use in uses:
        if use.allocation is not None or not use.devices:
            continue
        for _, alternatives in itertools.groupby(
            requests_of(use.devices), lambda request: request.name.partition("/")[0]
        ):
            found = [_of_request(situation, pod, use, request, refusals) for request in alternatives]
            if found and all(found):  # one alternative that could be had is enough
                yield found[0]  # type: ignore[misc]
                return
    yield from _together(situation, pod, uses, refusals)
    finding = finding_of(situation, pod, answers)
    if finding is not None:
        yield finding


def _of_request(
    situation: Situation, pod: Object, use: ClaimUse, request: Request, refusals: dict[str, str]
) -> Finding | None:
    """What keeps one request, or one alternative of it, from its devices."""
    if situation.snapshot.get("DeviceClass", request.class_name) is None:
        return None
    return next(_of_funnel(situation, pod, use, funnel_of(situation, request), refusals), None)


def with_changes(situation: Situation, pod: Object, finding: Finding) -> Finding:
    """Adds what the allocator says about the most promising nodes, and the smallest changes that would help there.

    Costs a few allocations per node, so it is done for the finding that is shown and not for every pending pod.
    """
    if finding.cause not in _CHANGEABLE:
        return finding
    answers = answers_for(situation, pod, situation.claims_of(pod))
    if answers.fits:
        return finding
    known = {item.text for item in finding.evidence}
    evidence = (*finding.evidence, *(item for item in answers.evidence() if item.text not in known))
    changes = [] if "it would fit with" in finding.next_step else answers.changes()
    if not changes:
        return replace(finding, evidence=evidence)
    more = "; or ".join(changes[:_SHOWN])
    return replace(finding, evidence=evidence, next_step=f"{finding.next_step}; it would fit with: {more}")


_CHANGEABLE: Final = frozenset(
    {
        "selector-matches-nothing",
        "devices-in-use",
        "devices-tainted",
        "capacity-exhausted",
        "counters-exhausted",
        "constraint-unsatisfiable",
        "node-mismatch",
        "unschedulable-other",
    }
)


def _of_funnel(
    situation: Situation, pod: Object, use: ClaimUse, funnel: Funnel, refusals: dict[str, str]
) -> Iterator[Finding]:
    request = funnel.request
    label = label_of(use)
    if funnel.invalid:
        text, error = next(iter(funnel.invalid.items()))
        subject = use.template if use.template is not None and use.claim is None else pod
        yield _finding(
            situation, pod, "selector-invalid", f"the selector `{text}` of claim {label} does not compile",
            [Evidence(text, _where(use, request)), Evidence(error)],
            "correct the expression", subject=subject,
        )  # fmt: skip
    misplaced = _misplaced(situation, funnel)
    if misplaced is not None and not funnel.selected:
        text, kind, domain, name, owner = misplaced
        right = f"device.{'capacity' if kind == 'attributes' else 'attributes'}['{owner.key.driver}'].{name}"
        failure = funnel.errors.get(text)
        other = "capacity" if kind == "attributes" else "attribute"
        evidence = [
            Evidence(text, _where(use, request)),
            Evidence(
                f"device {owner.key} publishes {name} as {other}: {_actual(owner, name)}",
                f"ResourceSlice/{owner.slice_name}",
            ),
        ]
        if failure is not None:
            evidence.append(Evidence(f"{failure[0]} on device {failure[1].key}"))
        yield _finding(
            situation, pod, "selector-attribute-is-capacity",
            f"the selector of claim {label} looks for {name} among the {kind} (device.{kind}['{domain}'].{name}),"
            f" but devices publish it as {other}",
            evidence + _scheduling(situation, pod),
            f"write {right}.compareTo(quantity('…')) >= 0" if other == "capacity" else f"write {right}",
        )  # fmt: skip
    if funnel.errors and not funnel.selected:
        text, (error_text, published) = next(iter(funnel.errors.items()))
        yield _finding(
            situation, pod, "selector-error",
            f"the selector of claim {label} fails on device {published.key}: {error_text}",
            [
                Evidence(text, _where(use, request)),
                Evidence(error_text, f"ResourceSlice/{published.slice_name}"),
                *_scheduling(situation, pod),
            ],
            "guard the lookup, e.g. with `in` or `.?name.orValue(…)`",
        )  # fmt: skip
    if not funnel.selected and funnel.unmatched:
        yield _matches_nothing(situation, pod, use, funnel)
    if not funnel.selected and not funnel.unmatched and not funnel.errors and not funnel.invalid:
        yield _none_of_class(situation, pod, use, funnel)
    yield from _selected_but_not_available(situation, pod, use, funnel, refusals)


def _none_of_class(situation: Situation, pod: Object, use: ClaimUse, funnel: Funnel) -> Finding:
    name = funnel.request.class_name
    device_class = situation.snapshot.get("DeviceClass", name) or {}
    texts = [
        (selector.get("cel") or {}).get("expression", "")
        for selector in (device_class.get("spec") or {}).get("selectors") or ()
    ]
    drivers = Counter(published.key.driver for published in situation.devices)
    return _finding(
        situation, pod, "selector-matches-nothing",
        f"no published device is of class {name}, which claim {label_of(use)} asks for",
        [
            *(Evidence(text, f"DeviceClass/{name} spec.selectors") for text in texts),
            Evidence(f"published devices: {_spread(drivers) if drivers else 'none'}"),
            *_scheduling(situation, pod),
        ],
        f"is the driver that class {name} is made for running? kubectl get resourceslices",
    )  # fmt: skip


def _matches_nothing(situation: Situation, pod: Object, use: ClaimUse, funnel: Funnel) -> Finding:
    clauses = Counter(clause.text for _, clause, _ in funnel.unmatched)
    clause, count = clauses.most_common(1)[0]
    wanted = next((false.wanted for _, false, _ in funnel.unmatched if false.text == clause), "")
    values: dict[str, Counter[str]] = {}
    examples: dict[tuple[str, str], Published] = {}
    for published, false_clause, _ in funnel.unmatched:
        if false_clause.text == clause:
            for name, value in device_values(published, clause).items():
                values.setdefault(name, Counter())[value] += 1
                examples.setdefault((name, value), published)
    actual = [
        f"{name} is {value} on {number} device{'s' if number > 1 else ''}, e.g. {examples[name, value].key}"
        for name, counted in values.items()
        for value, number in counted.most_common(_SHOWN)
    ]
    short = "; ".join(
        f"{name} is {', '.join(value for value, _ in counted.most_common(_SHOWN))}" for name, counted in values.items()
    )
    evidence = [Evidence(clause, _where(use, funnel.request))]
    if wanted:
        evidence.append(Evidence(f"wanted: {wanted}"))
    evidence += [Evidence(text) for text in actual]
    evidence += [Evidence("; ".join(funnel.lines()))]
    return _finding(
        situation, pod, "selector-matches-nothing",
        f"no device satisfies `{clause}` of claim {label_of(use)}: {count} device{'s' if count > 1 else ''} of class"
        f" {funnel.request.class_name} fail it" + (f" ({short})" if short else ""),
        evidence + _scheduling(situation, pod),
        "relax the selector, or add nodes with such devices",
    )  # fmt: skip


def _selected_but_not_available(
    situation: Situation, pod: Object, use: ClaimUse, funnel: Funnel, refusals: dict[str, str]
) -> Iterator[Finding]:
    request, label = funnel.request, label_of(use)
    wanted = 1 if request.all_devices else request.count
    if not funnel.selected:
        return
    on_refused = [published for published in funnel.free if refusals.get(published.node)]
    usable = [published for published in funnel.free if not refusals.get(published.node)]
    lines = Evidence("; ".join(funnel.lines()))
    if not funnel.free and not funnel.held and funnel.tainted:
        yield _tainted(situation, pod, label, funnel, lines)
    elif not funnel.free and funnel.held:
        yield _held(situation, pod, label, funnel, lines)
    elif (
        len(usable) < wanted
        and (here := _where_it_may_run(funnel, refusals)).selected + len(usable) >= wanted > 0
        and (here.selected)
    ):
        yield (_held if here.held else _tainted)(situation, pod, label, replace(here, free=usable), lines)
    elif len(usable) < wanted and on_refused and len(on_refused) + len(usable) >= wanted:
        yield _elsewhere(situation, pod, label, funnel, on_refused, refusals)
    elif request.capacity and (short := _shares(situation, funnel, usable)):
        yield _finding(
            situation, pod, "capacity-exhausted",
            f"claim {label} asks for {_amounts(request)} of a shareable device; none has that much left: {short[0]}",
            [
                Evidence(f"asks for {_amounts(request)}", _where(use, request)),
                *(Evidence(line) for line in short),
                lines,
                *_scheduling(situation, pod),
            ],
            "wait for a share to be given back, ask for less, or add devices",
        )  # fmt: skip
    elif (
        len(usable) < wanted
        and (funnel.held or funnel.tainted)
        and not any(published.device.get("consumesCounters") for published in usable)
    ):
        yield (_held if funnel.held else _tainted)(situation, pod, label, funnel, lines)


def _where_it_may_run(funnel: Funnel, refusals: dict[str, str]) -> Funnel:
    """Devices that are held or tainted on nodes that would take the pod: free ones elsewhere are no help to it."""
    return replace(
        funnel,
        held=[(published, claims) for published, claims in funnel.held if refusals.get(published.node) == ""],
        tainted=[(published, taint) for published, taint in funnel.tainted if refusals.get(published.node) == ""],
        free=[],
    )


def _tainted(situation: Situation, pod: Object, label: str, funnel: Funnel, lines: Evidence) -> Finding:
    keys = Counter(f"{taint.get('key')}:{taint.get('effect')}" for _, taint in funnel.tainted)
    nodes = sorted({published.node or published.key.pool for published, _ in funnel.tainted})
    evidence = [
        Evidence(
            f"device {published.key} carries {taint.get('key')}={taint.get('value', '')}:{taint.get('effect')}",
            f"ResourceSlice/{published.slice_name}",
        )
        for published, taint in funnel.tainted[:_SHOWN]
    ]
    which = f"{len(funnel.tainted)} of the" if funnel.free else f"all {len(funnel.tainted)}"
    return _finding(
        situation, pod, "devices-tainted",
        f"{which} devices that match claim {label} carry a taint it does not tolerate:"
        f" {', '.join(keys)} on {', '.join(nodes)}",
        [*evidence, Evidence(f"tainted devices are on {', '.join(nodes)}"), lines, *_scheduling(situation, pod)],
        "look at what the taint means (kernel log, XID), repair or replace the device; tolerate it only knowingly",
    )  # fmt: skip


def _held(situation: Situation, pod: Object, label: str, funnel: Funnel, lines: Evidence) -> Finding:
    unused = [claim for _, claims in funnel.held for claim in claims if _forgotten(situation, claim)]
    if unused:
        return _retained(situation, pod, label, unused[0], funnel, lines)
    deadlock = _rollout(situation, pod, label, funnel, lines)
    if deadlock is not None:
        return deadlock
    evidence = []
    holders: dict[str, str] = {}
    for published, claims in funnel.held:
        for claim in claims:
            who = f"claim {namespace_of(claim)}/{name_of(claim)} ({situation.users_of(claim)})"
            holders[who] = str(published.key)
            evidence.append(Evidence(f"device {published.key} is held by {who}", reference(claim)))
    names = ", ".join(list(holders)[:_SHOWN]) + (f" and {len(holders) - _SHOWN} more" if len(holders) > _SHOWN else "")
    return _finding(
        situation, pod, "devices-in-use",
        f"{funnel.selected} devices match claim {label}, {len(funnel.free)} are free, the others are in use by {names}",
        [*evidence, lines, *_scheduling(situation, pod)],
        "wait until one is given back, or add devices",
    )  # fmt: skip


def _rollout(situation: Situation, pod: Object, label: str, funnel: Funnel, lines: Evidence) -> Finding | None:
    """Whether a rollout waits for devices that only its own old pods hold, and may not end those first."""
    snapshot = situation.snapshot
    owners = [owner for owner in owner_chain(snapshot, pod) if owner.get("kind") == "Deployment"]
    if not owners or funnel.free:
        return None
    deployment = owners[0]
    strategy = (deployment.get("spec") or {}).get("strategy") or {}
    if strategy.get("type") == "Recreate":
        return None
    limit = (strategy.get("rollingUpdate") or {}).get("maxUnavailable", "25%")
    replicas = (deployment.get("spec") or {}).get("replicas", 1)
    allowed = replicas * int(str(limit).rstrip("%")) // 100 if str(limit).endswith("%") else int(limit)
    users = [user for _, claims in funnel.held for claim in claims for user in pods_of_claim(snapshot, claim)]
    old = [user for user in users if deployment in owner_chain(snapshot, user)]
    mine = (pod["metadata"].get("labels") or {}).get("pod-template-hash")
    older = [user for user in old if (user["metadata"].get("labels") or {}).get("pod-template-hash") != mine]
    if allowed or not older:
        return None
    names = ", ".join(map(name_of, older[:_SHOWN]))
    return Finding(
        "rollout-deadlock",
        reference(deployment),
        f"the rollout of {name_of(deployment)} cannot go on: its new pod {name_of(pod)} needs a device, its old pods"
        f" {names} hold them, and maxUnavailable {limit} forbids to end one first",
        (
            Evidence(f"maxUnavailable {limit} of {replicas} replicas", f"{reference(deployment)} spec.strategy"),
            *(Evidence(f"old pod {name_of(user)} holds a device", reference(user)) for user in older[:_SHOWN]),
            lines,
            *_scheduling(situation, pod),
        ),
        "set strategy Recreate, or maxSurge 0 with maxUnavailable 1",
        affects=affected(snapshot, pod),
    )


def _forgotten(situation: Situation, claim: Object) -> bool:
    """Whether a claim holds devices although nothing uses it or owns it."""
    if (claim.get("status") or {}).get("reservedFor") or claim["metadata"].get("ownerReferences"):
        return False
    name, namespace = name_of(claim), namespace_of(claim)
    return not any(
        use.claim_name == name for pod in situation.snapshot.all("Pod", namespace) for use in situation.claims_of(pod)
    )


def _retained(situation: Situation, pod: Object, label: str, claim: Object, funnel: Funnel, lines: Evidence) -> Finding:
    held = [str(published.key) for published, claims in funnel.held if claim in claims]
    since = ((claim.get("status") or {}).get("allocation") or {}).get("allocationTimestamp", "")
    full = f"{namespace_of(claim)}/{name_of(claim)}"
    return Finding(
        "claim-retained",
        reference(claim),
        f"claim {full} holds {', '.join(held)} although no pod uses it; claim {label} waits for such a device",
        (
            Evidence("reservedFor is empty and no pod names the claim", f"{reference(claim)} status.reservedFor"),
            Evidence(f"allocated: {', '.join(held)}" + (f" since {since}" if since else ""), reference(claim)),
            Evidence(f"free again, {held[0]} would satisfy claim {label}"),
            lines,
            *_scheduling(situation, pod),
        ),
        f"ask its owner, then kubectl delete resourceclaim {name_of(claim)} -n {namespace_of(claim)}",
        affects=affected(situation.snapshot, pod),
    )


def _elsewhere(
    situation: Situation, pod: Object, label: str, funnel: Funnel, devices: list[Published], refusals: dict[str, str]
) -> Finding:
    nodes = sorted({published.node for published in devices})
    full = [node for node in nodes if _is_full(refusals[node])]
    if full:
        return _finding(
            situation, pod, "unschedulable-other",
            f"devices for claim {label} are free on {', '.join(full)}, which has no room for the rest of the pod:"
            f" {refusals[full[0]]}",
            [
                *(Evidence(f"node {node}: {refusals[node]}", f"Node/{node}") for node in full[:_SHOWN]),
                *_scheduling(situation, pod),
            ],
            "ask for less CPU, memory or other room, or make some on a node with devices",
        )  # fmt: skip
    spec = pod.get("spec") or {}
    wanted = ", ".join(f"{key}={value}" for key, value in (spec.get("nodeSelector") or {}).items())
    evidence = []
    for node in nodes[:_SHOWN]:
        labels = (situation.snapshot.get("Node", node) or {}).get("metadata", {}).get("labels") or {}
        shown_labels = ", ".join(f"{key}={labels.get(key, 'absent')}" for key in spec.get("nodeSelector") or {})
        evidence.append(
            Evidence(f"node {node}: {refusals[node]}" + (f" ({shown_labels})" if shown_labels else ""), f"Node/{node}")
        )
        if "taint" in refusals[node]:
            taints = ((situation.snapshot.get("Node", node) or {}).get("spec") or {}).get("taints") or ()
            shown_taints = ", ".join(f"{t.get('key')}={t.get('value', '')}:{t.get('effect')}" for t in taints)
            evidence.append(Evidence(f"node {node} has taint {shown_taints}", f"Node/{node} spec.taints"))
    if wanted:
        evidence.insert(0, Evidence(f"nodeSelector: {wanted}", f"{reference(pod)} spec.nodeSelector"))
    others = [node for node, reason in refusals.items() if not reason]
    return _finding(
        situation, pod, "node-mismatch",
        f"devices for claim {label} are free on {', '.join(nodes)}, but the pod may not run there: {refusals[nodes[0]]}"
        + (f" (nodeSelector {wanted})" if wanted else ""),
        [
            *evidence,
            Evidence(f"nodes that would take the pod: {', '.join(others) or 'none'}; none has a free matching device"),
            *_scheduling(situation, pod),
        ],
        "let node selector and device selector meet: change the selector, label or untaint the node",
    )  # fmt: skip


def _is_full(refusal: str) -> bool:
    """Whether a node refuses a pod only for want of room, which is no matter of its claims or selectors."""
    return bool(refusal) and all(reason.startswith(_ROOM) for reason in refusal.split(", "))


_ROOM: Final = ("Insufficient ", "Too many pods")


def _shares(situation: Situation, funnel: Funnel, devices: list[Published]) -> list[str]:
    """For shareable devices: what is left, if no device has enough of what the request asks for."""
    lines = []
    for published in devices:
        if published.device.get("allowMultipleAllocations") is not True:
            return []
        enough = True
        for name, amount in funnel.request.capacity.items():
            total = lookup(published, "capacity", published.key.driver, name)
            left = Quantity.parse(shown({"value": (total or {}).get("value", "0")}))
            users = []
            for claim in situation.holders.get(published.key, []):
                taken = _consumed(claim, published, name)
                if taken is not None:
                    left = left - taken
                    users.append(f"{namespace_of(claim)}/{name_of(claim)} {taken}")
            enough = enough and not left < Quantity.parse(str(amount))
            lines.append(f"{published.key} has {left} of {name} left ({', '.join(users) or 'unused'})")
        if enough:
            return []
    return lines


def _consumed(claim: Object, published: Published, name: str) -> Quantity | None:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    for result in (allocation.get("devices") or {}).get("results") or ():
        same = (result.get("driver"), result.get("pool"), result.get("device")) == tuple(published.key)
        amount = (result.get("consumedCapacity") or {}).get(name)
        if same and amount is not None:
            return Quantity.parse(str(amount))
    return None


def _together(situation: Situation, pod: Object, uses: list[ClaimUse], refusals: dict[str, str]) -> Iterator[Finding]:
    """Each request alone could be met; ask the allocator for all claims together, with and without constraints."""
    claims = [as_claim(pod, use) for use in uses if use.devices]
    open_claims = [claim for claim in claims if not (claim.get("status") or {}).get("allocation")]
    if not open_claims:
        return
    state = situation.allocator
    nodes = [node for node in situation.snapshot.all("Node") if not refusals.get(name_of(node))]
    try:
        if any(allocate(state, open_claims, node) for node in nodes):
            return
        without = [_without_constraints(claim) for claim in open_claims]
        constrained = any((claim["spec"].get("devices") or {}).get("constraints") for claim in open_claims)
        if constrained and any(allocate(state, without, node) for node in nodes):
            yield _constrained(situation, pod, open_claims[0])
            return
        alone = [any(allocate(state, [claim], node) for node in nodes) for claim in open_claims]
    except (AllocationError, DrakkarError):
        return
    if len(open_claims) > 1 and all(alone):
        names = ", ".join(name_of(claim) for claim in open_claims)
        yield _finding(
            situation, pod, "node-mismatch",
            f"each of the claims {names} fits on some node, but no node has room for all",
            [Evidence(f"no node can give {names} together"), *_scheduling(situation, pod)],
            "ask for less per pod, or free devices on one node",
        )  # fmt: skip
        return
    counted = [published for published in situation.devices if published.device.get("consumesCounters")]
    if counted:
        label = f"{namespace_of(pod)}/{name_of(open_claims[0])}"
        holders = [
            f"{published.key} by {namespace_of(claim)}/{name_of(claim)}"
            for published in counted
            for claim in situation.holders.get(published.key, [])
        ]
        yield _finding(
            situation, pod, "counters-exhausted",
            f"a partition for claim {label} fits no more into what is left of its GPU",
            [Evidence(f"partitions in use: {', '.join(holders) or 'none'}"), *_scheduling(situation, pod)],
            "wait for a partition to be given back, or ask for a smaller one",
        )  # fmt: skip


def _constrained(situation: Situation, pod: Object, claim: Object) -> Finding:
    constraints = (claim["spec"].get("devices") or {}).get("constraints") or ()
    texts = [str(c.get("matchAttribute") or c.get("distinctAttribute") or c) for c in constraints]
    values: dict[str, Counter[str]] = {}
    for text in texts:
        domain, _, name = text.rpartition("/")
        counted = Counter(
            shown(entry)
            for published in situation.devices
            if (entry := lookup(published, "attributes", domain, name)) is not None
        )
        values[text] = counted
    return _finding(
        situation, pod, "constraint-unsatisfiable",
        f"enough devices match claim {name_of(claim)} one by one, but none of their sets agrees in {', '.join(texts)}",
        [
            *(Evidence(f"constraint on {text}", f"{reference(claim)} spec.devices.constraints") for text in texts),
            *(Evidence(f"{text}: {_spread(counted)}") for text, counted in values.items()),
            *_scheduling(situation, pod),
        ],
        "drop the constraint, ask for fewer devices, or add devices that share the attribute",
    )  # fmt: skip


def _spread(counted: Counter[str]) -> str:
    return ", ".join(f"{value} on {number}" for value, number in counted.items()) or "absent everywhere"


def _without_constraints(claim: Object) -> Object:
    bare = copy.deepcopy(claim)
    bare["spec"].get("devices", {}).pop("constraints", None)
    return bare


def _misplaced(situation: Situation, funnel: Funnel) -> tuple[str, str, str, str, Published] | None:
    """A name that selectors read as attribute although devices publish it only as capacity, or the reverse."""
    devices = situation.devices
    for text in funnel.request.expressions:
        for kind, domain, name in references(text):
            if any(lookup(published, kind, domain, name) is not None for published in devices):
                continue
            other = "capacity" if kind == "attributes" else "attributes"
            for published in devices:
                if lookup(published, other, published.key.driver, name) is not None:
                    return text, kind, domain, name, published
    return None


def _actual(published: Published, name: str) -> str:
    for kind in ("capacity", "attributes"):
        entry = lookup(published, kind, published.key.driver, name)
        if entry is not None:
            return shown(entry if kind == "attributes" else {"value": entry.get("value")})
    return "absent"


def _amounts(request: Request) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in request.capacity.items())


def _where(use: ClaimUse, request: Request) -> str:
    origin = f", made from template {use.template_name}" if use.claim is not None and use.template_name else ""
    return f"{reference(use.claim or use.template or {})} request {request.name}{origin}"


def _scheduling(situation: Situation, pod: Object) -> list[Evidence]:
    found = situation.snapshot.events_of(pod, "FailedScheduling")
    return [Evidence(message_of(event), f"event FailedScheduling of {reference(pod)}") for event in found[-1:]]


def _finding(
    situation: Situation,
    pod: Object,
    cause: str,
    sentence: str,
    evidence: list[Evidence],
    next_step: str,
    *,
    subject: Object | None = None,
) -> Finding:
    about = subject or pod
    return Finding(
        cause, reference(about), sentence, tuple(evidence), next_step, affects=affected(situation.snapshot, pod)
    )
