"""What every new pod gets: a service account with its token, tolerations, a priority, its runtime class's overhead.

ServiceAccount, DefaultTolerationSeconds, Priority and RuntimeClass of kube-apiserver's default admission plugins.
"""

from __future__ import annotations

from typing import Any, Final

from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.calls import Call
from drakkar.cluster.machinery import recall

Value = dict[str, Any]

TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105
TOKEN_SECONDS: Final = 3607
TOLERATION_SECONDS: Final = 300
_UNREACHABLE: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def service_account(call: Call, operation: str, obj: Value, old: Value | None) -> Value:
    """Default the service account, require that it exists, and mount its token unless that is switched off."""
    del old
    spec = obj.get("spec") or {}
    if operation != "CREATE" or "kubernetes.io/config.mirror" in (obj["metadata"].get("annotations") or {}):
        return obj
    name = spec.get("serviceAccountName") or "default"
    namespace, pod = call.info.namespace, obj["metadata"].get("name", "")
    stored = call.server.store.collection("serviceaccounts").get(f"{namespace}/{name}")
    if stored is None:
        why = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        raise statuses.forbidden("", "pods", pod, why)
    # Pods that come from one template share one spec, the name of the token's volume included.
    chance, uid = call.server.chance, stored.value["metadata"]["uid"]
    stage = "service account", uid, stored.version, chance.seed
    suffix = chance.lasting_suffix(5, "token volume", uid)
    return {**obj, "spec": recall.made_once(spec, stage, lambda: _with_account(spec, name, stored.value, suffix))}


def _with_account(spec: Value, name: str, account: Value, suffix: str) -> Value:
    spec = {**spec, "serviceAccountName": name, "serviceAccount": name}
    if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
        spec["imagePullSecrets"] = account["imagePullSecrets"]
    automount = spec.get("automountServiceAccountToken")
    if automount is None:
        automount = account.get("automountServiceAccountToken")
    if automount is not False:
        _mount_token(spec, suffix)
    return spec


def _mount_token(spec: Value, suffix: str) -> None:
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    if all(any(mount.get("mountPath") == TOKEN_PATH for mount in one.get("volumeMounts") or ()) for one in containers):
        return
    present = (one["name"] for one in spec.get("volumes") or () if one["name"].startswith("kube-api-access-"))
    known = next(present, "")  # of an earlier round: a webhook has added a container since
    volume = known or f"kube-api-access-{suffix}"
    mount = {"name": volume, "readOnly": True, "mountPath": TOKEN_PATH}
    for kind in ("initContainers", "containers"):
        if spec.get(kind):
            spec[kind] = [_with_mount(container, mount) for container in spec[kind]]
    if known:
        return
    spec["volumes"] = [*(spec.get("volumes") or ()), {"name": volume, "projected": _token_sources()}]


def _with_mount(container: Value, mount: Value) -> Value:
    mounts = container.get("volumeMounts") or []
    if any(one.get("mountPath") == TOKEN_PATH for one in mounts):
        return container
    return {**container, "volumeMounts": [*mounts, dict(mount)]}


def _token_sources() -> Value:
    field = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    return {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}},
        ],
        "defaultMode": 420,
    }


def default_tolerations(call: Call, operation: str, obj: Value, old: Value | None) -> Value:
    """Pods stay five minutes on a node that is not ready or unreachable."""
    del call, operation, old
    spec = obj.get("spec") or {}
    tolerating = recall.made_once(spec, "tolerations", lambda: _with_tolerations(spec))
    return obj if tolerating is spec else {**obj, "spec": tolerating}


def _with_tolerations(spec: Value) -> Value:
    tolerations = list(spec.get("tolerations") or ())
    missing = [key for key in _UNREACHABLE if not any(_tolerates(one, key) for one in tolerations)]
    if not missing:
        return spec
    tolerations += [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS}
        for key in missing
    ]
    return {**spec, "tolerations": tolerations}


def _tolerates(toleration: Value, key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")


def priority(call: Call, operation: str, obj: Value, old: Value | None) -> Value:
    """Resolve `priorityClassName`, or the default class, into the number that the scheduler uses."""
    spec = obj.get("spec") or {}
    if operation != "CREATE":
        before = (old or {}).get("spec") or {}
        kept = {name: before[name] for name in ("priority", "preemptionPolicy") if name in before and name not in spec}
        return {**obj, "spec": {**spec, **kept}} if kept else obj
    pod, name = obj["metadata"].get("name", ""), spec.get("priorityClassName", "")
    classes = call.server.store.collection("priorityclasses.scheduling.k8s.io")
    if name:
        stored = classes.get(name)
        if stored is None:
            raise statuses.forbidden("", "pods", pod, f"no PriorityClass with name {name} was found")
        chosen = stored.value
    else:
        defaults = [one.value for one in classes.objects() if one.value.get("globalDefault")]
        chosen = min(defaults, key=lambda one: int(one.get("value") or 0), default={})
    number = int(chosen.get("value") or 0)
    policy = chosen.get("preemptionPolicy") or "PreemptLowerPriority"
    given = spec.get("priority")
    if given is not None and int(given) != number:
        why = (
            f"the integer value of priority ({given}) must not be provided in pod spec; "
            f"priority admission controller computed {number} from the given PriorityClass name"
        )
        raise statuses.forbidden("", "pods", pod, why)
    wanted = spec.get("preemptionPolicy")
    if wanted is not None and wanted != policy:
        why = (
            f"the string value of PreemptionPolicy ({wanted}) must not be provided in pod spec; "
            f"priority admission controller computed {policy} from the given PriorityClass name"
        )
        raise statuses.forbidden("", "pods", pod, why)
    named = {"priorityClassName": chosen["metadata"]["name"]} if chosen and not name else {}
    resolved = {**named, "priority": number, "preemptionPolicy": policy}
    stage = "priority", *resolved.values()
    return {**obj, "spec": recall.made_once(spec, stage, lambda: {**spec, **resolved})}


def only_one_default(call: Call, operation: str, obj: Value, old: Value | None) -> Value:
    """At most one PriorityClass may be the global default."""
    del operation, old
    if obj.get("globalDefault"):
        for stored in call.collection.objects():
            other = stored.value
            if other.get("globalDefault") and other["metadata"]["name"] != obj["metadata"].get("name"):
                name = other["metadata"]["name"]
                why = f"PriorityClass {name} is already marked as default. Only one default can exist"
                raise statuses.forbidden(call.row.group, call.row.plural, obj["metadata"].get("name", ""), why)
    return obj


def runtime_class(call: Call, operation: str, obj: Value, old: Value | None) -> Value:
    """Take overhead and scheduling constraints from the pod's RuntimeClass."""
    del old
    spec = obj.get("spec") or {}
    name = spec.get("runtimeClassName")
    if operation != "CREATE" or not name:
        return obj
    stored = call.server.store.collection("runtimeclasses.node.k8s.io").get(name)
    pod = obj["metadata"].get("name", "")
    if stored is None:
        raise statuses.forbidden("", "pods", pod, f'pod rejected: RuntimeClass "{name}" not found')
    found = stored.value
    spec = dict(spec)
    overhead = (found.get("overhead") or {}).get("podFixed")
    if overhead:
        if spec.get("overhead") and spec["overhead"] != overhead:
            why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
            raise statuses.forbidden("", "pods", pod, why)
        spec["overhead"] = overhead
    scheduling = found.get("scheduling") or {}
    selector = spec.get("nodeSelector") or {}
    for key, wanted in (scheduling.get("nodeSelector") or {}).items():
        if selector.get(key, wanted) != wanted:
            theirs, ours = f"runtimeClass.scheduling.nodeSelector[{key}]", f"pod.spec.nodeSelector[{key}]"
            why = f"conflict: {theirs} = {wanted}; {ours} = {selector[key]}"
            raise statuses.forbidden("", "pods", pod, why)
        selector = {**selector, key: wanted}
    if selector:
        spec["nodeSelector"] = selector
    if scheduling.get("tolerations"):
        present = spec.get("tolerations") or []
        spec["tolerations"] = [*present, *(one for one in scheduling["tolerations"] if one not in present)]
    return {**obj, "spec": spec}
