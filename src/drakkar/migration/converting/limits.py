"""What limits devices beside pods: ResourceQuota, LimitRange, and Kueue's queues.

A quota counts devices of a class, so a quota per MIG profile needs a class per profile. A LimitRange sees containers'
resources only, and would refuse containers that have none: what it said of GPUs has no equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from drakkar.kube import yamltext
from drakkar.kube.paths import value_at
from drakkar.migration.converting.devices import DOMAIN, PREFIX, device_class, device_type, profile_class, profile_of
from drakkar.migration.converting.placement import drop_empty
from drakkar.migration.converting.work import Object, Work
from drakkar.migration.documents import Document, Steps, items_at

__all__ = ["convert_limit_range", "convert_queue", "convert_quota", "kueue_mappings", "limited_profiles"]

_QUOTA: Final = ".deviceclass.resource.k8s.io/devices"
_BOUNDS: Final = {
    "default": "limitrange-default", "defaultRequest": "limitrange-default", "max": "limitrange-bounds",
    "min": "limitrange-bounds", "maxLimitRequestRatio": "limitrange-bounds",
}  # fmt: skip


def limited_profiles(objects: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """MIG profiles that a quota or a queue limits by themselves."""
    found: set[str] = set()
    for obj in objects:
        if obj.get("kind") == "ResourceQuota":
            hard = value_at(obj, ("spec", "hard"))
            names = [str(name).removeprefix("requests.") for name in hard] if isinstance(hard, dict) else []
        elif obj.get("kind") == "ClusterQueue":
            names = _queue_resources(obj)
        else:
            continue
        found |= {profile for profile in map(profile_of, names) if profile}
    return frozenset(found)


def convert_quota(work: Work, *, old_pods: Sequence[str]) -> None:
    """A ResourceQuota; `old_pods` are objects of its namespace that stay with the old resources."""
    steps: Steps = ("spec", "hard")
    hard = value_at(work.value, steps)
    names = [str(name) for name in hard if f"{PREFIX}" in str(name)] if isinstance(hard, dict) else []
    names = [name for name in names if name.removeprefix("requests.").removeprefix("limits.").startswith(PREFIX)]
    if not names:
        return
    if work.settings.to != "claims":
        for name in names:
            work.note(
                "kept", "quota-stays", (*steps, name), f"{name} stays: pods that use the old name are still charged"
            )
        return
    if work.value["spec"].get("scopes") or work.value["spec"].get("scopeSelector"):
        work.refuse("quota-scoped", ("spec",), "a quota with scopes counts pods of these scopes; claims have no scopes")
        return
    made: Object = {}
    for name, amount in work.value["spec"]["hard"].items():
        if name not in names:
            made[name] = amount
            continue
        resource = name.removeprefix("requests.")
        kind = device_type(resource)
        if not name.startswith("requests.") or kind is None:
            why = (
                "its resource is no GPU and no MIG profile"
                if kind is None
                else "only requests. of extended resources can be limited"
            )
            work.refuse("quota-unknown", (*steps, name), f"{name} has no equal for claims: {why}")
            continue
        class_name = DOMAIN
        if kind.profile:
            class_name = profile_class(kind.profile)
            work.classes.setdefault(class_name, device_class(class_name, kind.profile))
        if old_pods:
            made[name] = amount
            message = (
                f"{', '.join(old_pods[:3])} stay with the device plugin, so that old and new pods can have {amount}"
                " devices each"
            )
            work.lose("quota-twice", (*steps, name), message)
        made[class_name + _QUOTA] = amount
        work.note(
            "changed",
            "quota-per-class",
            (*steps, name),
            f"{name} becomes {class_name}{_QUOTA}: claims are counted per class",
        )
    work.value["spec"]["hard"] = made


def convert_limit_range(work: Work) -> None:
    """A LimitRange that says something of GPUs."""
    entries = value_at(work.value, ("spec", "limits"))
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        for part, code in _BOUNDS.items():
            listed = entry.get(part) if isinstance(entry, dict) else None
            if not isinstance(listed, dict):
                continue
            for name in [key for key in listed if str(key).startswith(PREFIX)]:
                steps = ("spec", "limits", number, part, name)
                if work.settings.to != "claims":
                    work.note("kept", "limitrange-stays", steps, f"{part} of {name} stays: pods use the old name")
                    continue
                value = listed[name]
                del listed[name]
                message = (
                    f"{part} {name}: {value} would be added beside the claims"
                    if code == "limitrange-default"
                    else f"{part} {name}: {value} limits containers; only a ValidatingAdmissionPolicy bounds claims"
                )
                work.lose(code, steps, message)
            drop_empty(entry, part)
    if isinstance(entries, list):
        left = [entry for entry in entries if not isinstance(entry, dict) or set(entry) - {"type"}]
        if left != entries and left:
            work.value["spec"]["limits"] = left


# -- Kueue ---------------------------------------------------------------------------------------------------


def _queue_resources(obj: Mapping[str, Any]) -> list[str]:
    found = []
    for group in items_at(obj, "spec", "resourceGroups"):
        found += [str(name) for name in group.get("coveredResources") or ()]
    return found


def kueue_mappings(resources: Iterable[str]) -> list[Object]:
    """What Kueue's configuration has to say so that claims are charged to the names that queues have already."""
    found = []
    for resource in dict.fromkeys(resources):
        kind = device_type(resource)
        if kind is not None:
            found.append(
                {"name": resource, "deviceClassNames": [profile_class(kind.profile) if kind.profile else DOMAIN]}
            )
    return found


def queue_resources(documents: Iterable[Document]) -> list[str]:
    """The device plugin's resources in the queues of the input."""
    return [
        name
        for document in documents
        if document.kind == "ClusterQueue"
        for name in _queue_resources(document.value)
        if name.startswith(PREFIX)
    ]


def convert_queue(work: Work, resources: Sequence[str], *, configured: bool) -> None:
    """A ClusterQueue keeps its names; Kueue's Configuration maps classes to them."""
    steps: Steps = ("spec", "resourceGroups")
    mine = [name for name in _queue_resources(work.value) if name.startswith(PREFIX)]
    if work.settings.to != "claims":
        for name in mine:
            work.note(
                "kept", "kueue-stays", steps, f"{name} stays: pods use the old name (Kueue 0.19 counts them by class)"
            )
        return
    for name in mine:
        kind = device_type(name)
        if kind is None:
            work.refuse(
                "kueue-unknown", steps, f"{name} is neither a GPU nor a MIG profile; no class can be charged to it"
            )
            continue
        if kind.profile:
            class_name = profile_class(kind.profile)
            work.classes.setdefault(class_name, device_class(class_name, kind.profile))
        work.note(
            "kept",
            "kueue-name",
            steps,
            f"the queue keeps {name}; Kueue's configuration charges claims to it (0.18 or later)",
        )
        if not configured:
            shown = kueue_mappings([name])[0]
            message = f"Kueue's Configuration is not among the files; it needs resources.deviceClassMappings: [{shown}]"
            work.note("manual", "kueue-mapping", steps, message)
    del resources


def configure_kueue(work: Work, resources: Sequence[str]) -> bool:
    """Add the mappings to Kueue's Configuration, by itself or inside its ConfigMap; false if the object has none."""
    mappings = kueue_mappings(resources)
    if work.settings.to != "claims" or not mappings:
        return False
    if work.document.kind == "Configuration" and work.document.group == "config.kueue.x-k8s.io":
        _map(work, (), work.value, mappings)
        return True
    data = work.value.get("data")
    text = data.get("controller_manager_config.yaml") if isinstance(data, dict) else None
    if work.document.kind != "ConfigMap" or not isinstance(text, str):
        return False
    try:
        configuration = yamltext.load(text)
    except yamltext.YamlError:
        return False
    if not isinstance(configuration, dict) or configuration.get("kind") != "Configuration":
        return False
    from drakkar.migration.rewriting.rewrite import rewrite

    _map(work, ("data", "controller_manager_config.yaml"), configuration, mappings)
    work.value["data"]["controller_manager_config.yaml"] = rewrite(text, configuration)
    return True


def _map(work: Work, steps: Steps, configuration: Object, mappings: list[Object]) -> None:
    resources = configuration.setdefault("resources", {})
    present = resources.setdefault("deviceClassMappings", [])
    for mapping in mappings:
        if any(isinstance(entry, dict) and entry.get("name") == mapping["name"] for entry in present):
            work.note("kept", "kueue-mapping", steps, f"the mapping of {mapping['name']} is there already")
            continue
        present.append(mapping)
        work.note(
            "changed",
            "kueue-mapping",
            steps,
            f"claims of {mapping['deviceClassNames'][0]} are charged to {mapping['name']}",
        )
