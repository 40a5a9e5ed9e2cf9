"""What is wrong with the volumes of a pod: one source each, and the source's own fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from drakkar.api import shared
from drakkar.api.fields import FieldError, duplicate, forbidden, invalid, not_supported, required
from drakkar.cluster.machinery.validation import values

__all__ = ["check_volumes"]

Json = Mapping[str, Any]
Found = list[FieldError]
# In the order in which upstream looks at them: a second source is refused where it stands.
_SOURCES: Final = (
    "emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs", "iscsi",
    "glusterfs",
    "flocker", "persistentVolumeClaim", "rbd", "cephfs", "quobyte", "downwardAPI", "fc", "configMap", "azureFile",
    "vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk", "storageos", "projected", "scaleIO", "csi",
    "ephemeral", "image", "cinder", "flexVolume",
)  # fmt: skip
_HOST_PATHS: Final = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket",
)  # fmt: skip


def check_volumes(volumes: Sequence[Json], path: str) -> tuple[dict[str, Json], Found]:
    """The valid volumes by name, and what is wrong with the others."""
    found: Found = []
    known: dict[str, Json] = {}
    for index, volume in enumerate(volumes):
        place = f"{path}[{index}]"
        wrong = _check_source(volume, place)
        name = volume.get("name") or ""
        wrong += shared.check_label(name, f"{place}.name") if name else [required(f"{place}.name")]
        if name in known:
            wrong.append(duplicate(f"{place}.name", name))
        if wrong:
            found += wrong
        else:
            known[name] = volume
    return known, found


def _check_source(volume: Json, path: str) -> Found:
    given = [name for name in _SOURCES if volume.get(name) is not None]
    if not given:
        return [required(path, "must specify a volume type")]
    found = _check_fields(given[0], volume[given[0]], f"{path}.{given[0]}")
    return found + [forbidden(f"{path}.{name}", "may not specify more than 1 volume type") for name in given[1:]]


def _check_fields(name: str, source: Json, path: str) -> Found:
    if name == "hostPath":
        return _check_host_path(source, path)
    if name == "emptyDir":
        limit = source.get("sizeLimit")
        negative = isinstance(limit, str) and limit.startswith("-")
        return [forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")] if negative else []
    if name == "secret":
        found = [] if source.get("secretName") else [required(f"{path}.secretName")]
        return found + _check_items(source, path)
    if name == "configMap":
        found = [] if source.get("name") else [required(f"{path}.name")]
        return found + _check_items(source, path)
    if name == "persistentVolumeClaim":
        return [] if source.get("claimName") else [required(f"{path}.claimName")]
    if name == "projected":
        found = _check_mode(source, "defaultMode", path)
        for index, part in enumerate(source.get("sources") or ()):
            found += _check_projection(part, f"{path}.sources[{index}]")
        return found
    if name == "downwardAPI":
        return _check_downward(source, path)
    if name == "csi":
        return shared.check_driver(source.get("driver") or "", f"{path}.driver")
    return []


def _check_host_path(source: Json, path: str) -> Found:
    target, kind = source.get("path") or "", source.get("type") or ""
    found: Found = []
    if not target:
        found.append(required(f"{path}.path"))
    elif ".." in target.split("/"):
        found.append(invalid(f"{path}.path", target, "must not contain '..'"))
    if kind not in _HOST_PATHS:
        found.append(not_supported(f"{path}.type", kind, _HOST_PATHS))
    return found


def _check_mode(source: Json, name: str, path: str) -> Found:
    mode = source.get(name)
    if mode is None or 0 <= mode <= 0o777:
        return []
    return [invalid(f"{path}.{name}", mode, "must be a number between 0 and 0777 (octal), both inclusive")]


def _check_items(source: Json, path: str) -> Found:
    found = _check_mode(source, "defaultMode", path)
    for index, item in enumerate(source.get("items") or ()):
        place = f"{path}.items[{index}]"
        if not item.get("key"):
            found.append(required(f"{place}.key"))
        found += _check_file(item, f"{place}.path")
        found += _check_mode(item, "mode", place)
    return found


def _check_file(item: Json, path: str) -> Found:
    target = item.get("path") or ""
    if not target:
        return [required(path)]
    if target.startswith("/"):
        return [invalid(path, target, "must be a relative path")]
    if ".." in target.split("/") or target.startswith(".."):
        return [invalid(path, target, "must not contain '..'")]
    return []


_DOWNWARD: Final = (
    "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
)  # fmt: skip


def _check_downward(source: Json, path: str) -> Found:
    """Files that hold fields of the pod; their paths are told without an index, as upstream does."""
    found = _check_mode(source, "defaultMode", path)
    for item in source.get("items") or ():
        found += _check_file(item, f"{path}.path")
        field = item.get("fieldRef")
        if field is not None:
            found += _check_downward_field(field.get("fieldPath") or "", f"{path}.fieldRef.fieldPath")
            if item.get("resourceFieldRef") is not None:
                detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
                found.append(invalid(path, "resource", detail))
        elif item.get("resourceFieldRef") is None:
            found.append(required(path, "one of fieldRef and resourceFieldRef is required"))
        found += _check_mode(item, "mode", path)
    return found


def _check_downward_field(field: str, path: str) -> Found:
    if not field:
        return [required(path)]
    if field in _DOWNWARD or values.is_label_or_annotation(field):
        return []
    return [not_supported(path, field, _DOWNWARD)]


_PROJECTIONS: Final = (
    "secret",
    "configMap",
    "downwardAPI",
    "serviceAccountToken",
    "clusterTrustBundle",
    "podCertificate",
)


def _check_projection(source: Json, path: str) -> Found:
    given = [name for name in _PROJECTIONS if source.get(name) is not None]
    if not given:
        return [required(path, "must specify a volume projection type")] if not source else []
    found = [forbidden(f"{path}.{name}", "may not specify more than 1 volume type per source") for name in given[1:]]
    part = source[given[0]]
    if given[0] in ("secret", "configMap"):
        place = f"{path}.{given[0]}"
        if not part.get("name"):
            found.append(required(f"{place}.name"))
        found += _check_items(part, place)
    if given[0] == "serviceAccountToken":
        seconds = part.get("expirationSeconds") or 0
        if seconds < 600:
            detail = "may not specify a duration less than 10 minutes"
            found.append(invalid(f"{path}.serviceAccountToken.expirationSeconds", seconds, detail))
        if not part.get("path"):
            found.append(required(f"{path}.serviceAccountToken.path"))
    return found
