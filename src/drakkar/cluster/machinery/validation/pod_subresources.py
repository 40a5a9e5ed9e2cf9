"""What is wrong with changes through `pods/ephemeralcontainers` and `pods/resize` (KEP-277, KEP-1287).

Both paths write a narrow part of the spec; what else the request says has been put back before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from drakkar.api.fields import FieldError, forbidden, invalid, quote
from drakkar.cluster.machinery.lifecycle import quality_of_service
from drakkar.cluster.machinery.validation.difference import difference
from drakkar.cluster.machinery.validation.pods import check_pod

__all__ = ["check_ephemeral_containers_update", "check_resize"]

Json = Mapping[str, Any]
Found = list[FieldError]
_MIRROR: Final = "kubernetes.io/config.mirror"
_RESIZABLE: Final = ("cpu", "memory")


def check_ephemeral_containers_update(new: Json, old: Json) -> Found:
    """Ephemeral containers may be added; those that are there stay as they are."""
    if _is_static(old):
        return [forbidden("", "static pods do not support ephemeral containers")]
    found = check_pod(new)
    by_name = {each.get("name"): each for each in _spec(new).get("ephemeralContainers") or ()}
    for former in _spec(old).get("ephemeralContainers") or ():
        name = former.get("name") or ""
        current = by_name.get(name)
        if current is None:
            text = f"existing ephemeral containers {quote(name)} may not be removed\n"
        elif current != former:
            shown = difference(current, former, "EphemeralContainer")
            text = f"existing ephemeral containers {quote(name)} may not be changed\n{shown}"
        else:
            continue
        found.append(forbidden("spec.ephemeralContainers", text))
    return found


def check_resize(new: Json, old: Json) -> Found:
    """CPU and memory of containers may change, within the pod's quality of service."""
    if _is_static(old):
        return [forbidden("", "static pods cannot be resized")]
    if (_spec(old).get("os") or {}).get("name") == "windows":
        return [forbidden("", "windows pods cannot be resized")]
    found = check_pod(new)
    quality = (old.get("status") or {}).get("qosClass") or quality_of_service(dict(_spec(old)))
    if quality != quality_of_service(dict(_spec(new))):
        detail = "Pod QOS Class may not change as a result of resizing"
        found.append(invalid("spec", (new.get("status") or {}).get("qosClass") or "", detail))
    if not _node_resizes(old):
        found.append(forbidden("spec", "Pod running on node without support for resize"))
    for part in ("initContainers", "containers"):
        for index, former in enumerate(_spec(old).get(part) or ()):
            current = _spec(new)[part][index]
            found += _check_kept(current, former, f"spec.{part}[{index}].resources")
    for index, former in enumerate(_spec(old).get("containers") or ()):
        if _others(_spec(new)["containers"][index]) != _others(former):
            found.append(forbidden("spec", "only cpu and memory resources are mutable"))
    for index, former in enumerate(_spec(old).get("initContainers") or ()):
        current = _spec(new)["initContainers"][index]
        path = f"spec.initContainers[{index}]"
        if _others(current) != _others(former):
            found.append(forbidden(path, "only cpu and memory resources for init or sidecar containers are mutable"))
        if current != former and former.get("restartPolicy") != "Always":
            detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
            policies = current.get("resizePolicy") or ()
            found += [forbidden(path, detail) for each in policies if each.get("restartPolicy") == "RestartContainer"]
    return found


def _spec(pod: Json) -> Json:
    return pod.get("spec") or {}


def _is_static(pod: Json) -> bool:
    return _MIRROR in ((pod.get("metadata") or {}).get("annotations") or {})


def _node_resizes(pod: Json) -> bool:
    """Whether the node reports resources of running containers; nothing running says nothing."""
    for report in (pod.get("status") or {}).get("containerStatuses") or ():
        if (report.get("state") or {}).get("running") is not None:
            return report.get("resources") is not None
    return True


def _check_kept(current: Json, former: Json, path: str) -> Found:
    now, before = current.get("resources") or {}, former.get("resources") or {}
    return [
        forbidden(f"{path}.{part}", f"resource {part} cannot be removed")
        for part in ("requests", "limits")
        if not (before.get(part) or {}).keys() <= (now.get(part) or {}).keys()
    ]


def _others(container: Json) -> dict[str, Any]:
    """The container without what a resize may change."""
    resources = dict(container.get("resources") or {})
    for part in ("requests", "limits"):
        amounts = resources.pop(part, None) or {}
        kept = {name: value for name, value in amounts.items() if name not in _RESIZABLE}
        if kept:
            resources[part] = kept
    return {**container, "resources": resources, "resizePolicy": None}
