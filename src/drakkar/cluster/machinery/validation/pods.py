"""What is wrong with pods and pod templates; what of a pod may still change after it exists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from drakkar.api import metadata, shared
from drakkar.api.fields import FieldError, duplicate, forbidden, invalid, not_supported, required, too_long
from drakkar.cluster.machinery import recall
from drakkar.cluster.machinery.validation import placement, pod_settings, values
from drakkar.cluster.machinery.validation.containers import (
    PodParts,
    check_containers,
    check_ephemeral_containers,
    check_init_containers,
    check_resources,
)
from drakkar.cluster.machinery.validation.difference import difference
from drakkar.cluster.machinery.validation.internal_types import internal
from drakkar.cluster.machinery.validation.volumes import check_volumes
from drakkar.kube import names

__all__ = ["check_new_pod", "check_pod", "check_pod_spec", "check_pod_update", "check_template"]

Json = Mapping[str, Any]
Found = list[FieldError]
_RESTART: Final = ("Always", "OnFailure", "Never")
_DNS: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_UPDATABLE: Final = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
    "previously negative)"
)


def check_pod(pod: Json) -> Found:
    """A pod's spec, as it is created or afterwards."""
    spec = pod.get("spec") or {}
    return list(recall.once(spec, "faults", lambda: _check_own_spec(spec)))


def check_new_pod(pod: Json) -> Found:
    """A pod that is created: nobody debugs it yet, and what holds it back holds."""
    found = _check_profiles(pod) + check_pod(pod)
    spec = pod.get("spec") or {}
    if spec.get("ephemeralContainers"):
        found.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        found.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return found


_PROFILE: Final = "container.apparmor.security.beta.kubernetes.io/"


def _check_profiles(pod: Json) -> Found:
    """The annotations that named AppArmor profiles before there was a field."""
    found: Found = []
    annotations, spec = (pod.get("metadata") or {}).get("annotations") or {}, pod.get("spec") or {}
    for key in sorted(annotations):
        if not key.startswith(_PROFILE):
            continue
        name, profile, place = key.removeprefix(_PROFILE), annotations[key], f"metadata.annotations[{key}]"
        if all(one.get("name") != name for kind in _KINDS for one in spec.get(kind) or ()):
            found.append(invalid(place, name, "container not found"))
        if profile not in ("", "runtime/default", "unconfined") and not profile.startswith("localhost/"):
            found.append(invalid(place, profile, f'invalid AppArmor profile name: "{profile}"'))
    return found


_KINDS: Final = ("containers", "initContainers", "ephemeralContainers")


def _check_own_spec(spec: Json) -> Found:
    found = check_pod_spec(spec, "spec")
    if not spec.get("serviceAccountName"):
        found += _check_tokens(spec)
    return found + values.check_non_negative(spec, "terminationGracePeriodSeconds", "spec")


def _check_tokens(spec: Json) -> Found:
    detail = "must not be specified when serviceAccountName is not set"
    return [
        forbidden(f"spec.volumes[{outer}].projected.sources[{index}].serviceAccountToken", detail)
        for outer, volume in enumerate(spec.get("volumes") or ())
        for index, source in enumerate((volume.get("projected") or {}).get("sources") or ())
        if source.get("serviceAccountToken") is not None
    ]


def check_template(template: Json, path: str) -> Found:
    """A pod template inside a workload."""
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    found = metadata.check_labels(meta.get("labels"), f"{path}.labels")
    found += metadata.check_annotations(meta.get("annotations"), f"{path}.annotations")
    found += check_pod_spec(spec, f"{path}.spec")
    if spec.get("ephemeralContainers"):
        found.append(forbidden(f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template"))
    return found


def check_pod_spec(spec: Json, path: str) -> Found:
    """The spec of a pod or template (defaults filled in)."""
    grace = spec.get("terminationGracePeriodSeconds")
    found: Found = [] if grace is not None else [required(f"{path}.terminationGracePeriodSeconds")]
    volumes, wrong = check_volumes(spec.get("volumes") or (), f"{path}.volumes")
    found += wrong
    claims = spec.get("resourceClaims") or []
    found += _check_claims(claims, f"{path}.resourceClaims")
    parts = PodParts(volumes, [claim.get("name") or "" for claim in claims], grace)
    regular, initial = spec.get("containers") or [], spec.get("initContainers") or []
    found += check_containers(regular, parts, f"{path}.containers")
    found += check_init_containers(initial, regular, parts, f"{path}.initContainers")
    ephemeral = spec.get("ephemeralContainers") or ()
    found += check_ephemeral_containers(ephemeral, [*regular, *initial], parts, f"{path}.ephemeralContainers")
    found += _check_choice(spec, "restartPolicy", _RESTART, path)
    found += _check_choice(spec, "dnsPolicy", _DNS, path)
    found += metadata.check_labels(spec.get("nodeSelector"), f"{path}.nodeSelector")
    found += pod_settings.check_security(spec, path)
    if spec.get("affinity") is not None:
        found += placement.check_affinity(spec["affinity"], f"{path}.affinity")
    found += pod_settings.check_dns(spec, path)
    found += _check_gates(spec.get("schedulingGates") or (), f"{path}.schedulingGates")
    found += placement.check_spreading(spec.get("topologySpreadConstraints") or (), f"{path}.topologySpreadConstraints")
    return found + _check_host_name(spec, path) + _check_names(spec, path) + pod_settings.check_late(spec, path)


def _check_choice(spec: Json, name: str, allowed: Sequence[str], path: str) -> Found:
    value = spec.get(name)
    if value in allowed:
        return []
    return [not_supported(f"{path}.{name}", value, allowed) if value else required(f"{path}.{name}")]


def _check_claims(claims: Sequence[Json], path: str) -> Found:
    found: Found = []
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        place = f"{path}[{index}]"
        name = claim.get("name") or ""
        if not name:
            found.append(required(f"{place}.name"))
        elif name in seen:
            found.append(duplicate(f"{place}.name", name))
        else:
            found += shared.check_label(name, f"{place}.name")
            seen.add(name)
        given = [field for field in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(field) is not None]
        if len(given) == 2:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            found.append(invalid(place, internal(claim, "PodResourceClaim"), detail))
        elif not given:
            detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            found.append(invalid(place, internal(claim, "PodResourceClaim"), detail))
        for field in given:
            found += [invalid(f"{place}.{field}", claim[field], text) for text in names.dns_subdomain(claim[field])]
    return found


def _check_gates(gates: Sequence[Json], path: str) -> Found:
    found: Found = []
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name") or ""
        found += [
            invalid(f"{path}[{index}]", name, text, origin="format=qualified-name") for text in names.label_key(name)
        ]
        if name in seen:
            found.append(duplicate(f"{path}[{index}]", name))
        seen.add(name)
    return found


def _check_host_name(spec: Json, path: str) -> Found:
    name, place = spec.get("hostnameOverride"), f"{path}.hostnameOverride"
    if name is None:
        return []
    found = [too_long(place, 64)] if len(name.encode()) > 64 else []
    return found + [invalid(place, name, text) for text in names.dns_subdomain(name)]


def _check_names(spec: Json, path: str) -> Found:
    found: Found = []
    for name in ("serviceAccountName", "nodeName"):
        if spec.get(name):
            found += [invalid(f"{path}.{name}", spec[name], text) for text in names.dns_subdomain(spec[name])]
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline < 1 << 31:
        place = f"{path}.activeDeadlineSeconds"
        found.append(invalid(place, deadline, "must be between 1 and 2147483647, inclusive"))
    for name in ("hostname", "subdomain"):
        if spec.get(name):
            found += shared.check_label(spec[name], f"{path}.{name}")
    found += placement.check_tolerations(spec.get("tolerations") or (), f"{path}.tolerations")
    for name, given in (("priorityClassName", ""), ("runtimeClassName", None)):
        value = spec.get(name, given)
        if value != given:
            found += [invalid(f"{path}.{name}", value, text) for text in names.dns_subdomain(value)]
    policy = spec.get("preemptionPolicy")
    if policy is not None:
        found += values.check_preemption_policy(policy, f"{path}.preemptionPolicy")
    return found + check_resources({"limits": spec.get("overhead")}, (), f"{path}.overhead")


def check_pod_update(pod: Json, old: Json) -> Found:
    """A changed pod: images, deadline, more tolerations and fewer gates, nothing else."""
    spec, before = pod.get("spec") or {}, old.get("spec") or {}
    meta = pod.get("metadata") or {}
    found = metadata.check_create(meta, namespaced=True, name_check=names.dns_subdomain)
    found += metadata.check_qualified_finalizers(meta)
    found += check_pod(pod)
    for name in ("containers", "initContainers"):
        wrong, stop = _check_same_containers(spec.get(name) or [], before.get(name) or [], f"spec.{name}")
        found += wrong
        if stop:
            return found
    deadline, former = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    if deadline is not None and former is not None and deadline > former:
        detail = "must be less than or equal to previous value"
        return [*found, invalid("spec.activeDeadlineSeconds", deadline, detail)]
    if deadline is None and former is not None:
        detail = "must not update from a positive integer to nil value"
        found.append(invalid("spec.activeDeadlineSeconds", None, detail))
    found += placement.check_added_tolerations(spec.get("tolerations") or [], before.get("tolerations") or [])
    gates = {gate.get("name") for gate in before.get("schedulingGates") or ()}
    added = [index for index, gate in enumerate(spec.get("schedulingGates") or ()) if gate.get("name") not in gates]
    found += [
        forbidden(f"spec.schedulingGates[{index}]", "only deletion is allowed, but found new scheduling gate")
        for index in added
    ]
    return found + _check_rest(spec, before)


def _check_same_containers(new: Sequence[Json], old: Sequence[Json], path: str) -> tuple[Found, bool]:
    if len(new) != len(old):
        return [forbidden(path, "pod updates may not add or remove containers")], True
    return [
        required(f"{path}[{index}].image") for index, item in enumerate(new) if not (item.get("image") or "").strip()
    ], False


def _check_rest(spec: Json, before: Json) -> Found:
    """Everything that may not change, compared with what may taken from the old pod."""
    munged = dict(spec)
    for name in ("containers", "initContainers"):
        if munged.get(name):
            munged[name] = [
                {**item, "image": old.get("image")}
                for item, old in zip(munged[name], before.get(name) or [], strict=False)
            ]
    taken = ["activeDeadlineSeconds", "schedulingGates", "tolerations"]
    if before.get("schedulingGates"):
        taken += ["nodeSelector"]
    for name in taken:
        if name in before:
            munged[name] = before[name]
        else:
            munged.pop(name, None)
    if (before.get("terminationGracePeriodSeconds") or 0) < 0 and munged.get("terminationGracePeriodSeconds") == 1:
        munged["terminationGracePeriodSeconds"] = before["terminationGracePeriodSeconds"]
    if munged == before:
        return []
    detail = f"pod updates may not change fields other than {_UPDATABLE}\n{difference(munged, before)}"
    return [forbidden("spec", detail)]
