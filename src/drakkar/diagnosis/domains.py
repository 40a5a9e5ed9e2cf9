"""ComputeDomains: nodes that have not joined, and two domains in one NVLink clique.

The status of a ComputeDomain lists the nodes that joined with their clique; the pods that use its channel are the
workers it waits for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drakkar.diagnosis.situation import Situation, ready
from drakkar.diagnosis.verdict import Evidence, Finding
from drakkar.evidence.snapshot import message_of, name_of, namespace_of, reference

__all__ = ["findings"]

Object = dict[str, Any]


def findings(situation: Situation) -> Iterator[Finding]:
    """What is wrong with ComputeDomains."""
    domains = situation.snapshot.all("ComputeDomain")
    yield from _overlaps(domains)
    for domain in domains:
        yield from _host_service(situation, domain)
        yield from _waiting(situation, domain)


def _overlaps(domains: list[Object]) -> Iterator[Finding]:
    first: dict[str, Object] = {}
    for domain in sorted(domains, key=lambda d: d["metadata"].get("creationTimestamp") or ""):
        for clique in sorted({str(node.get("cliqueID") or "") for node in _nodes(domain)} - {""}):
            other = first.setdefault(clique, domain)
            if other is domain:
                continue
            names = {name_of(d): ", ".join(n.get("name", "") for n in _nodes(d)) for d in (other, domain)}
            yield Finding(
                "compute-domain-overlap",
                reference(domain),
                f"ComputeDomains {name_of(other)} and {name_of(domain)} share the NVLink clique {clique}, so their"
                " IMEX domains disturb each other",
                tuple(
                    Evidence(f"{d}: nodes {nodes} in clique {clique}", f"ComputeDomain/{d} status.nodes")
                    for d, nodes in names.items()
                ),
                "run one domain per clique, or let both jobs share one domain; NCCL_MNNVL_ENABLE=0 avoids the fabric",
            )
            return


def _host_service(situation: Situation, domain: Object) -> Iterator[Finding]:
    """An IMEX service of the host holds the port that the domain's own daemon needs."""
    if (domain.get("status") or {}).get("status") == "Ready":
        return
    for node in _nodes(domain):
        name = node.get("name", "")
        capture = situation.snapshot.nodes.get(name)
        lines = capture.text("units.txt").splitlines() if capture is not None else []
        running = [line.strip() for line in lines if "nvidia-imex.service" in line and " active " in line]
        if running:
            yield Finding(
                "compute-domain-imex-conflict",
                reference(domain),
                f"the host's own nvidia-imex.service on {name} blocks the daemon of ComputeDomain {name_of(domain)}",
                (
                    Evidence(running[0], f"{name} units.txt"),
                    Evidence(f"{name} is {node.get('status', 'NotReady')}", f"{reference(domain)} status.nodes"),
                ),
                f"systemctl disable --now nvidia-imex.service on {name}",
            )


def _waiting(situation: Situation, domain: Object) -> Iterator[Finding]:
    wanted = (domain.get("spec") or {}).get("numNodes") or 0
    joined = _nodes(domain)
    if (domain.get("status") or {}).get("status") == "Ready" or len(joined) >= wanted:
        return
    template = (((domain.get("spec") or {}).get("channel") or {}).get("resourceClaimTemplate") or {}).get("name", "")
    workers = [
        pod
        for pod in situation.snapshot.all("Pod", namespace_of(domain))
        if any(use.template_name == template for use in situation.claims_of(pod))
    ]
    unbound = [pod for pod in workers if not (pod.get("spec") or {}).get("nodeName")]
    evidence = [
        Evidence(
            f"numNodes {wanted}, joined {len(joined)}: {', '.join(n.get('name', '') for n in joined) or 'none'}",
            reference(domain),
        )
    ]
    for pod in unbound:
        events = situation.snapshot.events_of(pod, "FailedScheduling")
        text = f": {message_of(events[-1])}" if events else ""
        evidence.append(Evidence(f"worker {name_of(pod)} is pending{text}", reference(pod)))
    for pod in workers:
        for event in situation.snapshot.events_of(pod, "FailedPrepareDynamicResources")[-1:]:
            evidence.append(Evidence(f"worker {name_of(pod)}: {message_of(event)}", reference(pod)))
    for node in situation.snapshot.all("Node"):
        if (node.get("spec") or {}).get("unschedulable"):
            evidence.append(Evidence(f"node {name_of(node)} is cordoned", reference(node)))
    missing = ", ".join(name_of(pod) for pod in unbound) or "its workers"
    yield Finding(
        "compute-domain-waiting",
        reference(domain),
        f"ComputeDomain {name_of(domain)} has {len(joined)} of {wanted} nodes and waits for {missing}",
        tuple(evidence),
        f"let {missing} be scheduled: free or uncordon a node of the clique, or lower numNodes",
        affects=frozenset(reference(pod) for pod in workers if not ready(pod)),
    )


def _nodes(domain: Object) -> list[Object]:
    return list((domain.get("status") or {}).get("nodes") or ())
