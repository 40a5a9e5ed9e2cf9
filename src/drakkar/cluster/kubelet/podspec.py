"""Questions about a pod object, answered without changing it.

Pods are plain JSON as the API server sent them; everything here is a pure function of one pod, so that the worker, the
status and the claims agree on what a pod asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from drakkar.errors import DrakkarError

Pod = Mapping[str, Any]
Spec = Mapping[str, Any]

ALWAYS: Final = "Always"
ON_FAILURE: Final = "OnFailure"
NEVER: Final = "Never"


class ClaimNameError(DrakkarError):
    """A pod's claim has no name yet, or names nothing."""


@dataclass(frozen=True, slots=True)
class PodClaim:
    """One claim of a pod by its name in the pod; `claim_name` None means that intentionally none was made."""

    name: str
    claim_name: str | None
    from_template: bool


@dataclass(frozen=True, slots=True)
class ContainerClaim:
    """A claim as a container uses it: the ResourceClaim's name and a request, "" for all of them."""

    pod_claim: str
    claim_name: str
    request: str


def uid(pod: Pod) -> str:
    return str(pod["metadata"]["uid"])


def key(pod: Pod) -> str:
    """`namespace/name`."""
    metadata = pod["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"


def described(pod: Pod) -> str:
    """`name_namespace(uid)`, as the kubelet's messages name pods."""
    metadata = pod["metadata"]
    return f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"


def containers(pod: Pod) -> list[Spec]:
    return list(pod["spec"].get("containers") or ())


def init_containers(pod: Pod) -> list[Spec]:
    return list(pod["spec"].get("initContainers") or ())


def ephemeral_containers(pod: Pod) -> list[Spec]:
    """Containers added to a running pod for debugging (KEP-277): they run once and the pod does not depend on them."""
    return list(pod["spec"].get("ephemeralContainers") or ())


def is_sidecar(container: Spec) -> bool:
    """A restartable init container (KEP-753)."""
    return container.get("restartPolicy") == ALWAYS


def all_containers(pod: Pod) -> Iterator[tuple[Spec, bool]]:
    """(container, is an init container) in start order, ephemeral ones last."""
    for container in init_containers(pod):
        yield container, True
    for container in (*containers(pod), *ephemeral_containers(pod)):
        yield container, False


def restart_policy(pod: Pod, container: Spec, *, init: bool) -> str:
    """The policy that rules this container: its own (KEP-5307) or the pod's; Always means OnFailure for init ones."""
    own = container.get("restartPolicy")
    if own:
        return str(own)
    policy = str(pod["spec"].get("restartPolicy") or ALWAYS)
    return ON_FAILURE if init and policy == ALWAYS else policy


def should_restart(pod: Pod, container: Spec, exit_code: int, *, init: bool) -> bool:
    """Whether a container that ended with `exit_code` runs again; the first rule that matches decides (KEP-5307)."""
    for rule in container.get("restartPolicyRules") or ():
        wanted = rule.get("exitCodes") or {}
        listed = exit_code in (wanted.get("values") or ())
        if listed == (wanted.get("operator") == "In"):
            return bool(rule.get("action") == "Restart")
    policy = restart_policy(pod, container, init=init)
    return policy == ALWAYS or (policy == ON_FAILURE and exit_code != 0)


def pod_claims(pod: Pod) -> list[PodClaim]:
    """All claims of the pod, that of its extended resources last. Raises `ClaimNameError` with Kubernetes' text."""
    found = [_pod_claim(pod, entry) for entry in pod["spec"].get("resourceClaims") or ()]
    extended = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    if extended:
        found.append(PodClaim("", extended["resourceClaimName"], False))
    return found


def container_claims(pod: Pod, container: Spec) -> list[ContainerClaim]:
    """What one container uses, in its own order, then its extended resources."""
    names = {claim.name: claim.claim_name for claim in pod_claims(pod) if claim.name}
    found = []
    for entry in (container.get("resources") or {}).get("claims") or ():
        claim_name = names.get(entry["name"])
        if claim_name is not None:
            found.append(ContainerClaim(entry["name"], claim_name, entry.get("request") or ""))
    extended = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    for mapping in extended.get("requestMappings") or ():
        if mapping["containerName"] == container["name"]:
            found.append(ContainerClaim("", extended["resourceClaimName"], mapping["requestName"]))
    return found


def is_owned_by(claim: Mapping[str, Any], pod: Pod) -> bool:
    """Whether the claim was made for this very pod (its controller is the pod, by UID)."""
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") == uid(pod) for owner in owners)


def is_reserved_for(claim: Mapping[str, Any], pod: Pod) -> bool:
    """Whether the pod, by UID, is among the consumers that the claim is reserved for."""
    consumers = (claim.get("status") or {}).get("reservedFor") or ()
    return any(consumer.get("uid") == uid(pod) for consumer in consumers)


def grace_period(pod: Pod) -> int:
    """Seconds that containers have to end: what the deletion asked for, else the pod's own wish, else 30."""
    asked = pod["metadata"].get("deletionGracePeriodSeconds")
    if asked is None:
        asked = pod["spec"].get("terminationGracePeriodSeconds")
    return max(1, 30 if asked is None else int(asked))


def _pod_claim(pod: Pod, entry: Mapping[str, Any]) -> PodClaim:
    if entry.get("resourceClaimName"):
        return PodClaim(entry["name"], entry["resourceClaimName"], False)
    if not entry.get("resourceClaimTemplateName"):
        raise ClaimNameError(
            f'pod "{key(pod)}", spec.resourceClaim "{entry["name"]}": none of the supported fields are set',
            subject=f"Pod/{key(pod)}",
        )
    for status in (pod.get("status") or {}).get("resourceClaimStatuses") or ():
        if status["name"] == entry["name"]:
            return PodClaim(entry["name"], status.get("resourceClaimName"), True)
    raise ClaimNameError(f'pod "{key(pod)}": ResourceClaim not created yet', subject=f"Pod/{key(pod)}")
