"""What is wrong with the containers of a pod: names, images, ports, environment, mounts, probes, resources and
claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from drakkar.api import shared
from drakkar.api.fields import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_many,
)
from drakkar.cluster.machinery.validation import values
from drakkar.kube import names
from drakkar.kube.quantity import Quantity

__all__ = ["PodParts", "check_containers", "check_ephemeral_containers", "check_init_containers", "check_resources"]

Json = Mapping[str, Any]
Found = list[FieldError]
_ENV_SOURCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_FIELD_PATHS: Final = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP",
    "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
_SIDECAR_ONLY: Final = "may not be set for init containers without restartPolicy=Always"


class PodParts(NamedTuple):
    """What containers refer to in their pod."""

    volumes: Mapping[str, Json]
    claims: Sequence[str]
    grace: int | None


def check_containers(containers: Sequence[Json], parts: PodParts, path: str) -> Found:
    """The regular containers."""
    if not containers:
        return [required(path)]
    found: Found = []
    seen: set[str] = set()
    for index, container in enumerate(containers):
        place = f"{path}[{index}]"
        found += _check_common(container, parts, place)
        name = container.get("name") or ""
        if name in seen:
            found.append(duplicate(f"{place}.name", name))
        seen.add(name)
        found += _check_life(container, parts, place)
        found += _check_restart(container, place)
    for index, container in enumerate(containers):
        found += _check_image_blanks(container, f"{path}[{index}]")
    return found + _check_host_ports(containers, path)


def _check_image_blanks(container: Json, path: str) -> Found:
    image = container.get("image") or ""
    if image == image.strip():
        return []
    return [invalid(f"{path}.image", image, "must not have leading or trailing whitespace")]


def check_init_containers(containers: Sequence[Json], regular: Sequence[Json], parts: PodParts, path: str) -> Found:
    """The init containers; those that restart always are sidecars and may have probes."""
    found: Found = []
    seen = {container.get("name") or "" for container in regular}
    for index, container in enumerate(containers):
        place = f"{path}[{index}]"
        found += _check_common(container, parts, place)
        found += _check_restart(container, place)
        name = container.get("name") or ""
        if name in seen:
            found.append(duplicate(f"{place}.name", name))
        elif name:
            seen.add(name)
        found += _check_host_ports([container], path)
        if container.get("restartPolicy") == "Always":
            found += _check_life(container, parts, place)
        else:
            for part in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
                if container.get(part) is not None:
                    found.append(forbidden(f"{place}.{part}", _SIDECAR_ONLY))
    return found


_NOT_EPHEMERAL: Final = (
    "ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resources", "resizePolicy",
    "restartPolicy",
)  # fmt: skip


def check_ephemeral_containers(containers: Sequence[Json], others: Sequence[Json], parts: PodParts, path: str) -> Found:
    """Ephemeral containers: names of their own, a target that exists, nothing that needs planning."""
    found: Found = []
    taken = {container.get("name") or "" for container in others}
    known = set(taken)
    for index, container in enumerate(containers):
        place = f"{path}[{index}]"
        found += _check_common(container, parts, place)
        name = container.get("name") or ""
        if name in taken:
            found.append(duplicate(f"{place}.name", name))
        elif name:
            taken.add(name)
        target = container.get("targetContainerName")
        if target and target not in known:
            found.append(not_found(f"{place}.targetContainerName", target))
        for part in _NOT_EPHEMERAL:
            if container.get(part):
                found.append(forbidden(f"{place}.{part}", "cannot be set for an Ephemeral Container"))
    return found


def _check_common(container: Json, parts: PodParts, path: str) -> Found:
    name = container.get("name") or ""
    found = shared.check_label(name, f"{path}.name") if name else [required(f"{path}.name")]
    if not container.get("image"):
        found.append(required(f"{path}.image"))
    policy = container.get("terminationMessagePolicy")
    if policy not in ("File", "FallbackToLogsOnError"):
        place = f"{path}.terminationMessagePolicy"
        found.append(not_supported(place, policy, ("File", "FallbackToLogsOnError")) if policy else required(place))
    found += _check_ports(container.get("ports") or (), f"{path}.ports")
    found += _check_environment(container, path)
    found += _check_mounts(container, parts, path)
    pull = container.get("imagePullPolicy")
    if pull not in ("Always", "IfNotPresent", "Never"):
        place = f"{path}.imagePullPolicy"
        found.append(not_supported(place, pull, ("Always", "IfNotPresent", "Never")) if pull else required(place))
    found += check_resources(container.get("resources") or {}, parts.claims, f"{path}.resources")
    return found + _check_security(container.get("securityContext") or {}, f"{path}.securityContext")


def _check_ports(ports: Sequence[Json], path: str) -> Found:
    found: Found = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        place = f"{path}[{index}]"
        name, protocol = port.get("name"), port.get("protocol")
        if name:
            wrong = values.check_port_name(name, f"{place}.name")
            found += wrong
            if not wrong and name in seen:
                found.append(duplicate(f"{place}.name", name))
            seen.add(name)
        number = port.get("containerPort") or 0
        found += values.check_port(number, f"{place}.containerPort") if number else [required(f"{place}.containerPort")]
        if port.get("hostPort"):
            found += values.check_port(port["hostPort"], f"{place}.hostPort")
        if not protocol:
            found.append(required(f"{place}.protocol"))
        elif protocol not in values.PROTOCOLS:
            found.append(not_supported(f"{place}.protocol", protocol, values.PROTOCOLS))
    return found


def _check_host_ports(containers: Sequence[Json], path: str) -> Found:
    found: Found = []
    seen: set[str] = set()
    for outer, container in enumerate(containers):
        for index, port in enumerate(container.get("ports") or ()):
            if not port.get("hostPort"):
                continue
            key = f"{port.get('protocol') or ''}/{port.get('hostIP') or ''}/{port['hostPort']}"
            if key in seen:
                found.append(duplicate(f"{path}[{outer}].ports[{index}].hostPort", key))
            seen.add(key)
    return found


def _check_variable_name(name: str, path: str) -> Found:
    if any(not " " <= character <= "~" or character == "=" for character in name):
        words = "a valid environment variable name must consist only of printable ASCII characters other than '='"
        return [invalid(path, name, words)]
    return []


def _check_environment(container: Json, path: str) -> Found:
    found: Found = []
    for index, variable in enumerate(container.get("env") or ()):
        place = f"{path}.env[{index}]"
        name = variable.get("name") or ""
        found += _check_variable_name(name, f"{place}.name") if name else [required(f"{place}.name")]
        if variable.get("valueFrom") is not None:
            found += _check_value_source(variable, f"{place}.valueFrom")
    for index, source in enumerate(container.get("envFrom") or ()):
        place = f"{path}.envFrom[{index}]"
        if source.get("prefix"):
            found += _check_variable_name(source["prefix"], f"{place}.prefix")
        given = [name for name in ("configMapRef", "secretRef") if source.get(name) is not None]
        for name in given:
            if not source[name].get("name"):
                found.append(required(f"{place}.{name}.name"))
        if len(given) != 1:
            detail = (
                "may not have more than one field specified at a time"
                if given
                else ("must specify one of: `configMapRef` or `secretRef`")
            )
            found.append(invalid(f"{path}.envFrom", "", detail))
    return found


def _check_value_source(variable: Json, path: str) -> Found:
    source = variable["valueFrom"]
    given = [name for name in _ENV_SOURCES if source.get(name) is not None]
    found: Found = []
    if "fieldRef" in given:
        found += _check_field_reference(source["fieldRef"], f"{path}.fieldRef")
    if "resourceFieldRef" in given:
        found += check_resource_field(source["resourceFieldRef"], f"{path}.resourceFieldRef")
    for name in ("configMapKeyRef", "secretKeyRef"):
        if name in given:
            found += _check_key_reference(source[name], f"{path}.{name}")
    if not given:
        listed = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        found.append(invalid(path, "", f"must specify one of: {listed}"))
    elif variable.get("value"):
        found.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(given) > 1:
        found.append(invalid(path, "", "may not have more than one field specified at a time"))
    return found


def _check_field_reference(reference: Json, path: str) -> Found:
    field = reference.get("fieldPath") or ""
    if not field:
        return [required(f"{path}.fieldPath")]
    if field in _FIELD_PATHS or values.is_label_or_annotation(field):
        return []
    if field not in _KNOWN_PATHS:
        detail = f"error converting fieldPath: field label not supported: {field}"
        return [invalid(f"{path}.fieldPath", field, detail)]
    return [not_supported(f"{path}.fieldPath", field, _FIELD_PATHS)]


_KNOWN_PATHS: Final = frozenset(
    ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
     "spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "spec.schedulerName", "spec.hostNetwork",
     "status.phase", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs", "status.nominatedNodeName")
)  # fmt: skip
"""What paths of a pod can be selected by at all."""
_RESOURCE_FIELDS: Final = (
    "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage",
    "requests.memory",
)  # fmt: skip


def check_resource_field(reference: Json, path: str) -> Found:
    """A container's request or limit that is passed on."""
    field = reference.get("resource") or ""
    if not field:
        return [required(f"{path}.resource")]
    if field in _RESOURCE_FIELDS or field.startswith(("limits.hugepages-", "requests.hugepages-")):
        return []
    return [not_supported(f"{path}.resource", field, _RESOURCE_FIELDS)]


def _check_key_reference(reference: Json, path: str) -> Found:
    name = reference.get("name") or ""
    found = [invalid(f"{path}.name", name, text) for text in names.dns_subdomain(name)]
    key = reference.get("key") or ""
    if not key:
        return [*found, required(f"{path}.key")]
    return found + [invalid(f"{path}.key", key, text) for text in names.config_map_key(key)]


_PROPAGATIONS: Final = ("Bidirectional", "HostToContainer", "None")


def _check_mounts(container: Json, parts: PodParts, path: str) -> Found:
    found: Found = []
    seen: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        place = f"{path}.volumeMounts[{index}]"
        name, target = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            found.append(required(f"{place}.name"))
        if name not in parts.volumes:
            found.append(not_found(f"{place}.name", name))
        if not target:
            found.append(required(f"{place}.mountPath"))
        if target in seen:
            found.append(invalid(f"{place}.mountPath", target, "must be unique"))
        seen.add(target)
        for part in ("subPath", "subPathExpr"):
            value = mount.get(part) or ""
            if value.startswith("/"):
                found.append(invalid(f"{path}.volumeMounts.{part}", value, "must be a relative path"))
            if ".." in value.split("/"):
                found.append(invalid(f"{path}.volumeMounts.{part}", value, "must not contain '..'"))
        if mount.get("subPath") and mount.get("subPathExpr"):
            detail = "subPathExpr and subPath are mutually exclusive"
            found.append(invalid(f"{place}.subPathExpr", mount["subPathExpr"], detail))
        propagation = mount.get("mountPropagation")
        if propagation is not None and propagation not in _PROPAGATIONS:
            found.append(not_supported(f"{path}.volumeMounts.mountPropagation", propagation, _PROPAGATIONS))
    return found


def _check_security(context: Json, path: str) -> Found:
    found: Found = []
    for name in ("runAsUser", "runAsGroup"):
        value = context.get(name)
        if value is not None and not 0 <= value < 1 << 31:
            found.append(invalid(f"{path}.{name}", value, "must be between 0 and 2147483647, inclusive"))
    mount = context.get("procMount")
    if mount is not None and mount not in ("Default", "Unmasked"):
        found.append(not_supported(f"{path}.procMount", mount, ("Default", "Unmasked")))
    if context.get("allowPrivilegeEscalation") is False and context.get("privileged"):
        detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        found.append(invalid(path, dict(context), detail))
    return found


def check_resources(resources: Json, claims: Sequence[str], path: str) -> Found:
    """Requests, limits and claims of a container."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    found: Found = []
    for name, value in limits.items():
        found += values.check_container_resource(name, f"{path}.limits[{name}]")
        found += values.check_quantity(name, value, f"{path}.limits[{name}]")
    for name, value in requests.items():
        found += values.check_container_resource(name, f"{path}.requests[{name}]")
        found += values.check_quantity(name, value, f"{path}.requests[{name}]")
        found += _check_against_limit(name, value, limits.get(name), path)
    if any(name.startswith("hugepages-") for name in (*limits, *requests)) and not (
        {"cpu", "memory"} & {*limits, *requests}
    ):
        found.append(forbidden(path, "HugePages require cpu or memory"))
    return found + _check_claims(resources.get("claims") or (), claims, f"{path}.claims")


def _check_against_limit(name: str, value: str, limit: str | None, path: str) -> Found:
    if limit is None:
        missing = required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        return [] if values.overcommits(name) else [missing]
    wanted, allowed = Quantity.from_json(value), Quantity.from_json(limit)
    if wanted != allowed and not values.overcommits(name):
        return [invalid(f"{path}.requests", value, f"must be equal to {name} limit of {limit}")]
    if wanted > allowed:
        return [invalid(f"{path}.requests", value, f"must be less than or equal to {name} limit of {limit}")]
    return []


def _check_claims(items: Sequence[Json], claims: Sequence[str], path: str) -> Found:
    """References to the pod's claims; a whole claim and a single request of it are not taken both."""
    found: Found = []
    seen: set[str] = set()
    for index, item in enumerate(items):
        place = f"{path}[{index}]"
        name, request = item.get("name") or "", item.get("request") or ""
        if not name:
            found.append(required(place))
            continue
        if name in seen:
            found.append(duplicate(place, name))
        else:
            key = f"{name}/{request}" if request else name
            if request:
                found += shared.check_label(request, f"{place}.request")
            if key in seen:
                found.append(duplicate(place, key))
            elif not request:
                found += [duplicate(place, name) for other in seen if other.partition("/")[0] == name and "/" in other]
            seen.add(key)
        if name not in claims:
            error = not_found(place, name)
            listed = ": " + ", ".join(sorted(set(claims))) if claims else " which is empty"
            error.detail = f"must be one of the names in pod.spec.resourceClaims{listed}"
            found.append(error)
    return found


def _check_restart(container: Json, path: str) -> Found:
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or ()
    found: Found = []
    if policy is None:
        if not rules:
            return []
        detail = "must specify restartPolicy when restart rules are used"
        found.append(required(f"{path}.restartPolicy", detail))
    elif policy not in ("Always", "Never", "OnFailure"):
        found.append(not_supported(f"{path}.restartPolicy", policy, ("Always", "Never", "OnFailure")))
    if len(rules) > 20:
        found.append(too_many(f"{path}.restartPolicyRules", len(rules), 20))
    for index, rule in enumerate(rules):
        place = f"{path}.restartPolicyRules[{index}]"
        if rule.get("action") not in ("Restart", "RestartAllContainers"):
            found.append(
                not_supported(f"{place}.action", rule.get("action") or "", ("Restart", "RestartAllContainers"))
            )
        codes = rule.get("exitCodes")
        if codes is None:
            found.append(required(f"{place}.exitCodes", "must be specified"))
        elif codes.get("operator") not in ("In", "NotIn"):
            found.append(not_supported(f"{place}.exitCodes.operator", codes.get("operator") or "", ("In", "NotIn")))
    return found


def _check_life(container: Json, parts: PodParts, path: str) -> Found:
    found: Found = []
    lifecycle = container.get("lifecycle") or {}
    for name in ("postStart", "preStop"):
        if lifecycle.get(name) is not None:
            found += _check_handler(lifecycle[name], parts.grace, f"{path}.lifecycle.{name}")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(name)
        if probe is not None:
            found += _check_probe(probe, parts.grace, f"{path}.{name}", name)
    return found


def _check_probe(probe: Json, grace: int | None, path: str, name: str) -> Found:
    found = _check_handler(probe, grace, path)
    for field in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        found += values.check_non_negative(probe, field, path)
    own = probe.get("terminationGracePeriodSeconds")
    if own is not None and own <= 0:
        found.append(invalid(f"{path}.terminationGracePeriodSeconds", own, "must be greater than 0"))
    threshold = probe.get("successThreshold") or 0
    if name != "readinessProbe" and threshold != 1:
        found.append(invalid(f"{path}.successThreshold", threshold, "must be 1"))
    if name == "readinessProbe" and own is not None:
        place = f"{path}.terminationGracePeriodSeconds"
        found.append(invalid(place, own, "must not be set for readinessProbes"))
    return found


_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")


def _check_handler(handler: Json, grace: int | None, path: str) -> Found:
    given = [name for name in _HANDLERS if handler.get(name) is not None]
    if not given:
        return [required(path, "must specify a handler type")]
    found = _check_action(given[0], handler[given[0]], grace, f"{path}.{given[0]}")
    return found + [forbidden(f"{path}.{name}", "may not specify more than 1 handler type") for name in given[1:]]


def _check_action(name: str, action: Json, grace: int | None, path: str) -> Found:
    if name == "exec":
        return [] if action.get("command") else [required(f"{path}.command")]
    if name == "sleep":
        seconds = action.get("seconds") or 0
        if grace is not None and not 0 < seconds <= grace:
            detail = f"must be greater than 0 and less than terminationGracePeriodSeconds ({grace})"
            return [invalid(path, seconds, detail)]
        return []
    if name == "httpGet":
        found = [] if action.get("path") else [required(f"{path}.path")]
        found += values.check_port_or_name(action.get("port"), f"{path}.port")
        if action.get("scheme") not in ("HTTP", "HTTPS"):
            found.append(not_supported(f"{path}.scheme", action.get("scheme") or "", ("HTTP", "HTTPS")))
        return found
    return values.check_port_or_name(action.get("port"), f"{path}.port")
