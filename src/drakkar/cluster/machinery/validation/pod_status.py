"""What is wrong with a changed status of a pod: conditions, container states, claims, health of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from drakkar.api import metadata, shared
from drakkar.api.fields import FieldError, duplicate, forbidden, invalid, not_supported, required, too_long
from drakkar.kube import names

__all__ = ["check_pod_status_update"]

Json = Mapping[str, Any]
Found = list[FieldError]


def check_pod_status_update(pod: Json, old: Json) -> Found:
    """A changed status."""
    status, before = pod.get("status") or {}, old.get("status") or {}
    spec = pod.get("spec") or {}
    found: Found = []
    for index, condition in enumerate(status.get("conditions") or ()):
        kind = condition.get("type") or ""
        found += [invalid(f"status.conditions[{index}].Type", kind, text) for text in names.label_key(kind)]
    nominated = status.get("nominatedNodeName") or ""
    if nominated and nominated != before.get("nominatedNodeName"):
        found += shared.check_node_name(nominated, "status.nominatedNodeName")
        if (old.get("spec") or {}).get("nodeName"):
            detail = "may not be set on pods that are already bound to a node"
            found.append(forbidden("status.nominatedNodeName", detail))
    if (status.get("observedGeneration") or 0) < 0:
        value = status["observedGeneration"]
        found.append(invalid("status.observedGeneration", value, "must be a non-negative integer"))
    found += metadata.check_immutable(status.get("qosClass", ""), before.get("qosClass", ""), "status.qosClass")
    found += _check_transitions(status, before, spec)
    known = {claim.get("name") for claim in spec.get("resourceClaims") or ()}
    found += _check_claim_statuses(status.get("resourceClaimStatuses") or (), known)
    extended = status.get("extendedResourceClaimStatus")
    if extended is not None:
        found += _check_extended(extended, spec, "status.extendedResourceClaimStatus")
    for name, containers in (("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")):
        by_name = {container.get("name"): container for container in spec.get(containers) or ()}
        for index, report in enumerate(status.get(name) or ()):
            if report.get("allocatedResourcesStatus"):
                found += _check_health(report, by_name.get(report.get("name")), extended, f"status.{name}[{index}]")
    return found + [
        forbidden(f"status.ephemeralContainerStatuses[{index}].allocatedResourcesStatus", _NO_HEALTH)
        for index, report in enumerate(status.get("ephemeralContainerStatuses") or ())
        if report.get("allocatedResourcesStatus")
    ]


_NO_HEALTH: Final = "must not be specified in container status"
_HEALTHS: Final = ("Healthy", "Unhealthy", "Unknown")
_CLAIM: Final = "claim:"
MESSAGE_LIMIT: Final = 1024


def _check_extended(extended: Json, spec: Json, path: str) -> Found:
    """The claim that was made for extended resources (KEP-5004), and which request serves which container."""
    containers = {
        container.get("name"): container
        for part in ("initContainers", "containers")
        for container in spec.get(part) or ()
    }
    found: Found = []
    mappings = extended.get("requestMappings") or ()
    if not mappings:
        found.append(required(f"{path}.requestMappings", "at least one request mapping is required"))
    seen: set[tuple[str, ...]] = set()
    parts = ("containerName", "resourceName", "requestName")
    for index, mapping in enumerate(mappings):
        place = f"{path}.requestMappings[{index}]"
        container, resource, request = key = tuple(mapping.get(part) or "" for part in parts)
        if container not in containers:
            detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
            found.append(invalid(f"{place}.containerName", container, detail))
        elif resource not in ((containers[container].get("resources") or {}).get("requests") or {}):
            detail = (
                "must match the extended resource name of an entry in spec.initContainers.resources.requests or "
                "spec.containers.resources.requests"
            )
            found.append(invalid(f"{place}.resourceName", resource, detail))
        found += [invalid(f"{path}.requestName", request, text) for text in names.dns_label(request)]
        if key in seen:
            found += [duplicate(f"{place}.{part}", value) for part, value in zip(parts, key, strict=True)]
        seen.add(key)
    claim = extended.get("resourceClaimName") or ""
    if not claim:
        return [*found, required(f"{path}.resourceClaimName")]
    return found + [invalid(f"{path}.resourceClaimName", claim, text) for text in names.dns_subdomain(claim)]


def _check_health(report: Json, container: Json | None, extended: Json | None, path: str) -> Found:
    """The health of devices in a container (KEP-4680): known names, known words, no device twice."""
    found: Found = []
    for index, item in enumerate(report["allocatedResourcesStatus"]):
        place = f"{path}.allocatedResourcesStatus[{index}]"
        if container is not None:
            complaint = _unknown_resource(item.get("name") or "", container, extended)
            if complaint:
                found.append(invalid(f"{place}.name", item.get("name") or "", complaint))
        seen: set[str] = set()
        for number, device in enumerate(item.get("resources") or ()):
            at = f"{place}.resources[{number}]"
            if device.get("health") not in _HEALTHS:
                found.append(not_supported(f"{at}.health", device.get("health") or "", _HEALTHS))
            message = device.get("message")
            if message == "":
                found.append(required(f"{at}.message", "must be non-empty if specified"))
            elif message is not None and len(message.encode()) > MESSAGE_LIMIT:
                found.append(too_long(f"{at}.message", MESSAGE_LIMIT))
            identity = device.get("resourceID") or ""
            if identity in seen:
                found.append(duplicate(f"{at}.resourceID", identity))
            seen.add(identity)
    return found


def _unknown_resource(name: str, container: Json, extended: Json | None) -> str:
    """Why the name stands for nothing that the container was given; empty if it does."""
    resources = container.get("resources") or {}
    requests = resources.get("requests") or {}
    if not name.startswith(_CLAIM):
        return "" if name in requests else "must match one of the container's resource requests"
    known = {
        f"{_CLAIM}{claim.get('name')}" + (f"/{claim['request']}" if claim.get("request") else "")
        for claim in resources.get("claims") or ()
    }
    if extended is not None:
        known |= {
            f"{_CLAIM}{extended.get('resourceClaimName')}/{mapping.get('requestName')}"
            for mapping in extended.get("requestMappings") or ()
            if mapping.get("containerName") == container.get("name")
            and requests.get(mapping.get("resourceName"), "0") != "0"
        }
    if name in known:
        return ""
    return (
        "must match one of the container's resource claims as 'claim:<claimName>/<requestName>' when "
        "container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty"
    )


def _check_transitions(status: Json, before: Json, spec: Json) -> Found:
    """Terminated containers of pods that do not restart stay terminated."""
    if spec.get("restartPolicy") == "Always":
        return []
    found: Found = []
    now = {item.get("name"): item for item in status.get("containerStatuses") or ()}
    for index, former in enumerate(before.get("containerStatuses") or ()):
        ended = (former.get("state") or {}).get("terminated")
        if ended is None or (ended.get("exitCode") and spec.get("restartPolicy") == "OnFailure"):
            continue
        current = now.get(former.get("name"))
        if current is not None and (current.get("state") or {}).get("terminated") is None:
            detail = "may not be transitioned to non-terminated state"
            found.append(forbidden(f"status.containerStatuses[{index}].state", detail))
    return found


def _check_claim_statuses(statuses: Sequence[Json], known: set[Any]) -> Found:
    found: Found = []
    seen: set[str] = set()
    for index, status in enumerate(statuses):
        place = f"status.resourceClaimStatuses[{index}]"
        name = status.get("name") or ""
        if name not in known:
            detail = "must match the name of an entry in `spec.resourceClaims`"
            found.append(invalid(f"{place}.name", name, detail))
        if name in seen:
            found.append(duplicate(f"{place}.name", name))
        seen.add(name)
        claim = status.get("resourceClaimName")
        if claim is not None:
            found += [invalid(f"{place}.resourceClaimName", claim, text) for text in names.dns_subdomain(claim)]
    return found
