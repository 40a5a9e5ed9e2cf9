"""A container's environment: values, references and `$(NAME)` expansion.

`$(NAME)` stands for a variable defined before, `$$` for a dollar sign, and an unknown name stays as it is written
(`k8s.io/kubernetes/third_party/forked/golang/expansion`). What a reference needs and does not find is a configuration
error of the container, in the kubelet's words, unless it is marked optional.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from drakkar.cluster.kubelet.podspec import Pod, Spec, all_containers
from drakkar.errors import DrakkarError
from drakkar.kube.quantity import Quantity

_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^)]*)\))")
_SUBSCRIPT: Final = re.compile(r"^(metadata\.(?:labels|annotations))\['(.*)'\]$", re.DOTALL)
_NAME: Final = re.compile(r"^[ -<>-~]+$")


class ConfigError(DrakkarError):
    """A container cannot be configured (`CreateContainerConfigError`)."""


class Sources(Protocol):
    """Where config maps and secrets come from; None if there is no such object."""

    async def config_map(self, namespace: str, name: str) -> Mapping[str, Any] | None: ...
    async def secret(self, namespace: str, name: str) -> Mapping[str, Any] | None: ...


@dataclass(frozen=True, slots=True)
class Downward:
    """What the downward API may tell a container: the pod, its addresses, and what the node has to give."""

    pod: Pod
    host_ip: str
    pod_ip: str
    allocatable: Mapping[str, str]

    def field(self, path: str) -> str:
        """A `fieldRef`. Raises `ConfigError` for an unknown path."""
        metadata, spec = self.pod["metadata"], self.pod["spec"]
        subscript = _SUBSCRIPT.match(path)
        if subscript:
            values = metadata.get(subscript.group(1).removeprefix("metadata.")) or {}
            return str(values.get(subscript.group(2), ""))
        if path in ("metadata.labels", "metadata.annotations"):
            values = metadata.get(path.removeprefix("metadata.")) or {}
            return "\n".join(f'{key}="{_escaped(values[key])}"' for key in sorted(values))
        known = {
            "metadata.name": metadata.get("name"),
            "metadata.namespace": metadata.get("namespace"),
            "metadata.uid": metadata.get("uid"),
            "spec.nodeName": spec.get("nodeName"),
            "spec.serviceAccountName": spec.get("serviceAccountName") or "default",
            "status.hostIP": self.host_ip,
            "status.hostIPs": self.host_ip,
            "status.podIP": self.pod_ip,
            "status.podIPs": self.pod_ip,
        }
        if path not in known:
            raise ConfigError(f"unsupported fieldPath: {path}", expected=", ".join(sorted(known)))
        return str(known[path] or "")

    def resource(self, container: Spec, reference: Mapping[str, Any]) -> str:
        """A `resourceFieldRef`: limits default to what the node has, the result is rounded up to the divisor."""
        name = reference.get("containerName")
        if name:
            named = [spec for spec, _ in all_containers(self.pod) if spec["name"] == name]
            if not named:
                raise ConfigError(f"container {name} not found")
            container = named[0]
        kind, _, resource = str(reference["resource"]).partition(".")
        amount = ((container.get("resources") or {}).get(kind) or {}).get(resource)
        if amount is None and kind == "limits" and resource in ("cpu", "memory", "ephemeral-storage"):
            amount = self.allocatable.get(resource)
        quantity = Quantity.parse(amount if amount is not None else "0")
        divisor = Quantity.parse(reference.get("divisor") or "1")
        if resource == "cpu":
            value, by = quantity.milli_value(), max(1, divisor.milli_value() or 1000)
        else:
            value, by = quantity.value(), max(1, divisor.value() or 1)
        return str(-(-value // by))


async def environment(container: Spec, sources: Sources, downward: Downward) -> dict[str, str]:
    """The container's variables in order of definition. Raises `ConfigError`."""
    pod = downward.pod
    result: dict[str, str] = {}
    for entry in container.get("envFrom") or ():
        prefix = entry.get("prefix") or ""
        for kind, reference in (("ConfigMap", entry.get("configMapRef")), ("Secret", entry.get("secretRef"))):
            if reference is not None:
                values = await _values(pod, sources, kind, reference)
                result |= {prefix + key: value for key, value in values.items() if _NAME.match(prefix + key)}
    for entry in container.get("env") or ():
        name = entry["name"]
        if entry.get("valueFrom") is None:
            result[name] = expand(entry.get("value") or "", result)
            continue
        value = await _reference(container, sources, entry["valueFrom"], downward)
        if value is not None:
            result[name] = value
    return result


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by known values; `$$` is one dollar sign."""

    def replacement(match: re.Match[str]) -> str:
        if match.group(0) == "$$":
            return "$"
        return values.get(match.group(1), match.group(0))

    return _REFERENCE.sub(replacement, text)


def decoded(secret: Mapping[str, Any]) -> dict[str, bytes]:
    """The data of a Secret; an entry that is not base64 counts as empty."""
    found = {}
    for key, value in (secret.get("data") or {}).items():
        try:
            found[key] = base64.b64decode(value or "", validate=True)
        except ValueError:
            found[key] = b""
    return found


async def _reference(container: Spec, sources: Sources, source: Mapping[str, Any], downward: Downward) -> str | None:
    pod = downward.pod
    if source.get("fieldRef"):
        return downward.field(source["fieldRef"]["fieldPath"])
    if source.get("resourceFieldRef"):
        return downward.resource(container, source["resourceFieldRef"])
    for kind, reference in (("ConfigMap", source.get("configMapKeyRef")), ("Secret", source.get("secretKeyRef"))):
        if reference is None:
            continue
        values = await _values(pod, sources, kind, reference)
        if reference["key"] in values:
            return values[reference["key"]]
        if reference.get("optional"):
            return None
        raise ConfigError(
            f"couldn't find key {reference['key']} in {kind} {pod['metadata']['namespace']}/{reference['name']}"
        )
    return None


async def _values(pod: Pod, sources: Sources, kind: str, reference: Mapping[str, Any]) -> dict[str, str]:
    namespace, name = pod["metadata"]["namespace"], reference.get("name") or ""
    found = await (sources.config_map if kind == "ConfigMap" else sources.secret)(namespace, name)
    if found is None:
        if reference.get("optional"):
            return {}
        raise ConfigError(f'{kind.lower()} "{name}" not found')
    if kind == "Secret":
        return {key: value.decode("utf-8", "replace") for key, value in decoded(found).items()}
    return dict(found.get("data") or {})


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
