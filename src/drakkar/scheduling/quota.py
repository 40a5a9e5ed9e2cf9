"""What an object counts against a ResourceQuota: pods, services, volume claims, and devices by their class.

The rules of `k8s.io/kubernetes/pkg/quota/v1/evaluator`: every kind counts as `count/<plural>.<group>`; pods add their
requests and limits, ResourceClaims the devices they ask for per DeviceClass (KEP-4381; mode All counts as 32, of
alternatives the largest of each class), once more as the extended resources that the class provides (KEP-5004). The API
server asks on admission, the quota controller when it recounts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from drakkar.kube.quantity import Quantity
from drakkar.kube.selectors import LabelSelector
from drakkar.scheduling.extended_resources import IMPLICIT_PREFIX, ClassNames, special_owner

Object = Mapping[str, Any]
Usage = dict[str, Quantity]

ALL_DEVICES: Final = 32
"""`AllocationResultsMaxSize`: what allocation mode All is charged with."""
DEVICES_SUFFIX: Final = ".deviceclass.resource.k8s.io/devices"
CLAIMS: Final = "resourceclaims.resource.k8s.io"
_ONE: Final = Quantity.parse("1")
_ZERO: Final = Quantity.parse("0")
_NATIVE: Final = ("cpu", "memory", "ephemeral-storage")


def usage(collection: str, obj: Object) -> Usage:
    """What `obj` counts. `collection` is the qualified plural, e.g. ``pods`` or ``resourceclaims.resource.k8s.io``."""
    counted = {f"count/{collection}": _ONE}
    more = _EVALUATORS.get(collection)
    return counted if more is None else {**counted, **more(obj)}


def claim_usage(claim: Object, classes: ClassNames, pod: Object | None) -> Usage:
    """What a ResourceClaim counts, also as extended resources; less what `pod` has paid, for which it was made."""
    counted = usage(CLAIMS, claim)
    paid = {} if pod is None else usage("pods", pod)
    more: Usage = {}
    for name, amount in counted.items():
        if not name.endswith(DEVICES_SUFFIX):
            continue
        class_name = name.removesuffix(DEVICES_SUFFIX)
        for resource in filter(None, (IMPLICIT_PREFIX + class_name, classes.resource_of(class_name))):
            owed = amount - paid.get(f"requests.{resource}", _ZERO)
            if owed > _ZERO:
                more[f"requests.{resource}"] = owed
    return counted | more


def paying_pod(claim: Object, pods: Iterable[Object], claims: Iterable[Object]) -> Object | None:
    """The pod whose extended resources `claim` stands for; of several claims that say so of a pod only one does."""
    metadata = claim["metadata"]
    owner = special_owner(claim)
    if owner is None or (owner["apiVersion"], owner["kind"]) != ("v1", "Pod"):
        return None
    pod = next((one for one in pods if one["metadata"].get("uid") == owner["uid"]), None)
    if pod is None or pod["metadata"]["name"] != owner["name"]:
        return None
    named = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    if named is not None:
        return pod if named.get("resourceClaimName") == metadata.get("name") else None
    rivals = (one for one in claims if (special_owner(one) or {}).get("uid") == owner["uid"])
    return pod if _age(claim) <= min(map(_age, rivals), default=_age(claim)) else None


def _age(claim: Object) -> tuple[str, str]:
    return claim["metadata"].get("creationTimestamp") or "~", claim["metadata"].get("name") or ""


def counts_claims(resource: str, classes: ClassNames) -> bool:
    """Whether the quota controller counts claims, beside pods, for ``requests.<extended resource>``."""
    name = resource.removeprefix("requests.")
    if name.startswith(IMPLICIT_PREFIX):
        return classes.resource_of(name.removeprefix(IMPLICIT_PREFIX)) is not None
    return name != resource and classes.class_of(name) is not None


def total(usages: Iterable[Usage]) -> Usage:
    """The sum of what many objects count."""
    found: Usage = {}
    for one in usages:
        for name, amount in one.items():
            found[name] = found[name] + amount if name in found else amount
    return found


def collection_of(resource: str) -> str:
    """The collection whose objects a quota's resource name is counted from."""
    if resource.startswith("count/"):
        return resource.removeprefix("count/")
    if resource.endswith(DEVICES_SUFFIX):
        return CLAIMS
    if resource.endswith(
        (".storageclass.storage.k8s.io/requests.storage", ".storageclass.storage.k8s.io/persistentvolumeclaims")
    ):
        return "persistentvolumeclaims"
    return _OWNERS.get(resource, "pods")


_OWNERS: Final = {
    "services": "services",
    "services.nodeports": "services",
    "services.loadbalancers": "services",
    "persistentvolumeclaims": "persistentvolumeclaims",
    "requests.storage": "persistentvolumeclaims",
    **{name: name for name in ("configmaps", "secrets", "replicationcontrollers", "resourcequotas")},
}


def applies(quota_spec: Object, collection: str, obj: Object) -> bool:
    """Whether the quota's scopes let it count `obj` (scopes only concern pods)."""
    scopes: list[dict[str, Any]] = [
        {"scopeName": name, "operator": "Exists"} for name in quota_spec.get("scopes") or ()
    ]
    scopes += (quota_spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    if not scopes:
        return True
    return collection == "pods" and all(_in_scope(scope, obj) for scope in scopes)


def _in_scope(scope: Mapping[str, Any], pod: Object) -> bool:
    spec = pod["spec"]
    match scope["scopeName"]:
        case "Terminating":
            return spec.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return spec.get("activeDeadlineSeconds") is None
        case "BestEffort":
            return _best_effort(spec)
        case "NotBestEffort":
            return not _best_effort(spec)
        case "CrossNamespacePodAffinity":
            return _crosses_namespaces(spec)
        case "PriorityClass":
            requirement = {"key": "class", "operator": scope.get("operator", "In"), "values": scope.get("values") or []}
            name = spec.get("priorityClassName", "")
            labels = {"class": name} if name else {}
            return LabelSelector.from_object({"matchExpressions": [requirement]}).matches(labels)
        case _:
            return False


def _best_effort(spec: Object) -> bool:
    containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    resources = [one.get("resources") or {} for one in containers]
    return not any(one.get(part) for one in resources for part in ("requests", "limits"))


def _crosses_namespaces(spec: Object) -> bool:
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        terms = list(rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ())
        preferred = rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms += [one.get("podAffinityTerm") or {} for one in preferred]
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms):
            return True
    return False


def _pod(pod: Object) -> Usage:
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return {}
    counted = {"pods": _ONE}
    for part in ("requests", "limits"):
        for name, amount in pod_totals(pod["spec"], part).items():
            hugepages = name.startswith("hugepages-")
            if part == "requests" or name in _NATIVE:
                counted[f"{part}.{name}"] = amount
            if part == "requests" and (name in _NATIVE or hugepages):
                counted[name] = amount
    return counted


def pod_totals(spec: Object, part: str) -> Usage:
    """Requests or limits of a whole pod: containers and sidecars summed, or the largest ordinary init container."""
    running: Usage = {}
    peak: Usage = {}
    for container in spec.get("initContainers") or ():
        amounts = _amounts(container, part)
        if container.get("restartPolicy") == "Always":
            running = total((running, amounts))
            amounts = {}
        for name in dict.fromkeys((*amounts, *running)):
            together = running.get(name, _ZERO) + amounts.get(name, _ZERO)
            peak[name] = max(peak.get(name, _ZERO), together)
    running = total((running, *(_amounts(container, part) for container in spec.get("containers") or ())))
    for name, amount in peak.items():
        running[name] = max(running.get(name, _ZERO), amount)
    whole = (spec.get("resources") or {}).get(part) or {}
    running |= {name: Quantity.parse(text) for name, text in whole.items()}
    if part == "requests":
        overhead = {name: Quantity.parse(text) for name, text in (spec.get("overhead") or {}).items()}
        running = total((running, overhead))
    return running


def _amounts(container: Object, part: str) -> Usage:
    return {name: Quantity.parse(text) for name, text in ((container.get("resources") or {}).get(part) or {}).items()}


def _service(service: Object) -> Usage:
    spec = service.get("spec") or {}
    kind = spec.get("type")
    counted = {"services": _ONE}
    if kind in ("NodePort", "LoadBalancer") and spec.get("allocateLoadBalancerNodePorts") is not False:
        counted["services.nodeports"] = Quantity.parse(len(spec.get("ports") or ()))
    if kind == "LoadBalancer":
        counted["services.loadbalancers"] = _ONE
    return counted


def _volume_claim(claim: Object) -> Usage:
    spec = claim.get("spec") or {}
    counted = {"persistentvolumeclaims": _ONE}
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    storage_class = spec.get("storageClassName")
    if size is not None:
        counted["requests.storage"] = Quantity.parse(size)
    if storage_class:
        prefix = f"{storage_class}.storageclass.storage.k8s.io"
        counted[f"{prefix}/persistentvolumeclaims"] = _ONE
        if size is not None:
            counted[f"{prefix}/requests.storage"] = Quantity.parse(size)
    return counted


def _resource_claim(claim: Object) -> Usage:
    devices: dict[str, int] = {}
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        largest: dict[str, int] = {}
        for option in request.get("firstAvailable") or [request.get("exactly") or {}]:
            name = option.get("deviceClassName", "")
            count = ALL_DEVICES if option.get("allocationMode") == "All" else int(option.get("count") or 1)
            largest[name] = max(largest.get(name, 0), count)
        for name, count in largest.items():
            devices[name] = devices.get(name, 0) + count
    return {f"{name}{DEVICES_SUFFIX}": Quantity.parse(count) for name, count in devices.items() if name}


def _plain(name: str) -> Callable[[Object], Usage]:
    return lambda _: {name: _ONE}


_EVALUATORS: Final[dict[str, Callable[[Object], Usage]]] = {
    "pods": _pod,
    "services": _service,
    "persistentvolumeclaims": _volume_claim,
    CLAIMS: _resource_claim,
    **{name: _plain(name) for name in ("configmaps", "secrets", "replicationcontrollers", "resourcequotas")},
}
