"""LimitRanger: defaults, minima, maxima and ratios of resources in a namespace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.calls import Call
from drakkar.kube.quantity import Quantity
from drakkar.scheduling.quota import pod_totals

Value = dict[str, Any]

ANNOTATION: Final = "kubernetes.io/limit-ranger"


def _ranges(call: Call) -> list[Value]:
    found = call.server.store.collection("limitranges").objects(f"{call.info.namespace}/")
    return [limit for stored in found for limit in (stored.value.get("spec") or {}).get("limits") or ()]


def set_defaults(call: Call, operation: str, obj: Value, old: Value | None) -> Value:
    """Give containers the default requests and limits of the namespace, and note it in an annotation."""
    del old
    if operation != "CREATE":
        return obj
    limits = [limit for limit in _ranges(call) if limit.get("type") == "Container"]
    if not limits:
        return obj
    requests: Value = {}
    maxima: Value = {}
    for limit in limits:
        requests |= limit.get("defaultRequest") or {}
        maxima |= limit.get("default") or {}
    notes: list[str] = []
    spec = dict(obj["spec"])
    for kind, word in (("containers", "container"), ("initContainers", "init container")):
        if spec.get(kind):
            spec[kind] = [_with_defaults(one, requests, maxima, word, notes) for one in spec[kind]]
    if not notes:
        return obj
    annotations = {
        **(obj["metadata"].get("annotations") or {}),
        ANNOTATION: "LimitRanger plugin set: " + "; ".join(notes),
    }
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}, "spec": spec}


def _with_defaults(container: Value, requests: Value, maxima: Value, word: str, notes: list[str]) -> Value:
    resources = {**(container.get("resources") or {})}
    for part, defaults, what in (("limits", maxima, "limit"), ("requests", requests, "request")):
        present = resources.get(part) or {}
        missing = {name: amount for name, amount in defaults.items() if name not in present}
        if missing:
            resources[part] = {**present, **missing}
            notes.append(f"{', '.join(sorted(missing))} {what} for {word} {container['name']}")
    notes.sort(key=lambda note: (note.split(" for ", 1)[1], " request " not in note))
    return {**container, "resources": resources}


def judge(call: Call, operation: str, obj: Value | None, old: Value | None) -> None:
    """Raises `StatusError` 403 listing everything that is out of range."""
    del old
    if operation != "CREATE" or obj is None:
        return
    problems: list[str] = []
    for limit in _ranges(call):
        kind = limit.get("type")
        spec = obj["spec"]
        if kind == "Container":
            for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
                problems += _out_of_range(limit, container.get("resources") or {}, "Container")
        elif kind == "Pod":
            problems += _out_of_range(limit, _of_pod(spec), "Pod")
    if problems:
        text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        raise statuses.forbidden("", "pods", obj["metadata"].get("name", ""), text)


def judge_claim(call: Call, operation: str, obj: Value | None, old: Value | None) -> None:
    """The same for the storage that a volume claim asks for."""
    del old
    if operation == "DELETE" or obj is None:
        return
    problems: list[str] = []
    for limit in _ranges(call):
        if limit.get("type") == "PersistentVolumeClaim":
            problems += _out_of_range(limit, (obj.get("spec") or {}).get("resources") or {}, "PersistentVolumeClaim")
    if problems:
        text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        raise statuses.forbidden("", "persistentvolumeclaims", obj["metadata"].get("name", ""), text)


def _of_pod(spec: Value) -> Value:
    return {part: pod_totals(spec, part) for part in ("requests", "limits")}


def _out_of_range(limit: Value, resources: Value, kind: str) -> Iterable[str]:
    requests = {name: _quantity(amount) for name, amount in (resources.get("requests") or {}).items()}
    limits = {name: _quantity(amount) for name, amount in (resources.get("limits") or {}).items()}
    for name, text in sorted((limit.get("min") or {}).items()):
        least = Quantity.parse(text)
        if name in requests and requests[name] < least:
            yield f"minimum {name} usage per {kind} is {text}, but request is {requests[name]}"
        elif name not in requests:
            yield f"minimum {name} usage per {kind} is {text}.  No request is specified"
        elif name in limits and limits[name] < least:
            yield f"minimum {name} usage per {kind} is {text}, but limit is {limits[name]}"
    for name, text in sorted((limit.get("max") or {}).items()):
        most = Quantity.parse(text)
        if name in limits and limits[name] > most:
            yield f"maximum {name} usage per {kind} is {text}, but limit is {limits[name]}"
        elif name not in limits and kind != "PersistentVolumeClaim":
            yield f"maximum {name} usage per {kind} is {text}.  No limit is specified"
        elif name in requests and requests[name] > most:
            yield f"maximum {name} usage per {kind} is {text}, but request is {requests[name]}"
    for name, text in sorted((limit.get("maxLimitRequestRatio") or {}).items()):
        if not requests.get(name) or name not in limits:
            yield f"{name} max limit to request ratio per {kind} is {text}, but no request is specified or request is 0"
            continue
        ratio = limits[name].as_float() / requests[name].as_float()
        if ratio > Quantity.parse(text).as_float():
            yield f"{name} max limit to request ratio per {kind} is {text}, but provided ratio is {ratio:f}"


def _quantity(amount: Any) -> Quantity:
    return amount if isinstance(amount, Quantity) else Quantity.parse(amount)
