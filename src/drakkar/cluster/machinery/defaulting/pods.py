"""Defaults of pod specs, of pods and of the templates that workloads have.

Templates get the defaults of the spec and its containers; service links, requests from limits and host ports are
filled in for pods only.
"""

from __future__ import annotations

from typing import Any, Final

from drakkar.cluster.machinery import recall
from drakkar.cluster.machinery.defaulting.filling import each, filled, part

__all__ = ["pod", "pod_spec", "template"]

Json = dict[str, Any]
_SPEC: Final = {
    "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "securityContext": {}, "terminationGracePeriodSeconds": 30,
    "schedulerName": "default-scheduler",
}  # fmt: skip
_CONTAINER: Final = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
_PROBE: Final = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_FILE_MODE: Final = 0o644
_TOKEN_SECONDS: Final = 3600


def pod(obj: Json, known: Json | None = None) -> Json:
    """A pod; the spec of the stored one, if it is that, is complete."""
    spec = obj.get("spec")
    if known is None or spec is None or spec is not known.get("spec"):
        obj = part(obj, "spec", _own_spec_once, create=True)
    return part(obj, "status", _status)


def _own_spec_once(spec: Json) -> Json:
    return recall.made_once(spec, "defaults", lambda: _own_spec(spec))


def template(obj: Json) -> Json:
    """A pod template: metadata and spec."""
    return part(obj, "spec", pod_spec, create=True)


def pod_spec(spec: Json) -> Json:
    """The spec of a pod or template."""
    spec = filled(spec, _SPEC)
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account and (spec.get("serviceAccountName") != account or spec.get("serviceAccount") != account):
        spec = {**spec, "serviceAccountName": account, "serviceAccount": account}
    for name in ("containers", "initContainers", "ephemeralContainers"):
        spec = each(spec, name, _container)
    return each(spec, "volumes", _volume)


def _own_spec(spec: Json) -> Json:
    spec = filled(pod_spec(spec), {"enableServiceLinks": True})
    if spec["terminationGracePeriodSeconds"] < 0:
        spec = {**spec, "terminationGracePeriodSeconds": 1}
    for name in ("containers", "initContainers"):
        spec = each(spec, name, _requests_from_limits)
        if spec.get("hostNetwork"):
            spec = each(spec, name, lambda container: each(container, "ports", _host_port))
    return spec


def _requests_from_limits(container: Json) -> Json:
    limits = (container.get("resources") or {}).get("limits")
    if not limits:
        return container
    return part(
        container, "resources", lambda resources: part(resources, "requests", lambda r: filled(r, limits), create=True)
    )


def _host_port(port: Json) -> Json:
    return port if port.get("hostPort") else {**port, "hostPort": port.get("containerPort")}


def _container(container: Json) -> Json:
    container = filled(container, _CONTAINER)
    if not container.get("imagePullPolicy"):
        container = {**container, "imagePullPolicy": _pull_policy(container.get("image") or "")}
    container = each(container, "ports", lambda port: filled(port, {"protocol": "TCP"}))
    container = each(container, "env", _variable)
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        container = part(container, name, _probe)
    return part(container, "lifecycle", _lifecycle)


def _pull_policy(image: str) -> str:
    """Images without a tag or digest, and those tagged latest, are always pulled."""
    name = image.rpartition("/")[2]
    if "@" in name:
        return "IfNotPresent"
    tag = name.partition(":")[2]
    return "Always" if image and (not tag or tag == "latest") else "IfNotPresent"


def _variable(variable: Json) -> Json:
    return part(variable, "valueFrom", lambda source: part(source, "fieldRef", _field_reference))


def _field_reference(reference: Json) -> Json:
    return filled(reference, {"apiVersion": "v1"})


def _probe(probe: Json) -> Json:
    missing = {name: value for name, value in _PROBE.items() if not probe.get(name)}
    probe = {**probe, **missing} if missing else probe
    probe = part(probe, "grpc", lambda action: filled(action, {"service": ""}))
    return part(probe, "httpGet", _http)


def _http(action: Json) -> Json:
    return filled(action, {"path": "/", "scheme": "HTTP"})


def _lifecycle(lifecycle: Json) -> Json:
    for name in ("postStart", "preStop"):
        lifecycle = part(lifecycle, name, lambda handler: part(handler, "httpGet", _http))
    return lifecycle


def _volume(volume: Json) -> Json:
    if len(volume) == 1 and "name" in volume:
        return {**volume, "emptyDir": {}}
    for name in ("secret", "configMap", "downwardAPI", "projected"):
        volume = part(volume, name, _with_mode)
    volume = part(volume, "hostPath", lambda path: filled(path, {"type": ""}))
    volume = part(volume, "iscsi", lambda source: filled(source, {"iscsiInterface": "default"}))
    volume = part(volume, "ephemeral", _ephemeral)
    return part(volume, "image", _image)


def _with_mode(source: Json) -> Json:
    source = filled(source, {"defaultMode": _FILE_MODE})
    source = each(source, "items", lambda item: part(item, "fieldRef", _field_reference))
    return each(source, "sources", _projection)


def _projection(source: Json) -> Json:
    source = part(source, "serviceAccountToken", lambda token: filled(token, {"expirationSeconds": _TOKEN_SECONDS}))
    return part(
        source, "downwardAPI", lambda api: each(api, "items", lambda item: part(item, "fieldRef", _field_reference))
    )


def _ephemeral(source: Json) -> Json:
    return part(
        source,
        "volumeClaimTemplate",
        lambda claim: part(claim, "spec", lambda spec: filled(spec, {"volumeMode": "Filesystem"})),
    )


def _image(source: Json) -> Json:
    return source if source.get("pullPolicy") else {**source, "pullPolicy": _pull_policy(source.get("reference") or "")}


def _status(status: Json) -> Json:
    address, addresses = status.get("podIP"), status.get("podIPs")
    if address and (not addresses or addresses[0].get("ip") != address):
        return {**status, "podIPs": [{"ip": address}]}
    if addresses and not address:
        return {**status, "podIP": addresses[0].get("ip", "")}
    return status
