"""metadata of any object: what is checked when it is created and when it changes.

Follows Kubernetes' order, so that the causes of a Status come out in it: name, namespace, generation, labels,
annotations, owners, finalizers, managed fields; for updates first what may not change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from drakkar.api.fields import FieldError, duplicate, forbidden, invalid, not_supported, required, too_long
from drakkar.kube import names

__all__ = [
    "check_annotations",
    "check_conditions",
    "check_create",
    "check_field_manager",
    "check_immutable",
    "check_labels",
    "check_qualified_finalizers",
    "check_template",
    "check_update",
]

Found = list[FieldError]
Meta = Mapping[str, Any]
ANNOTATIONS_LIMIT: Final = 256 * 1024
_ORPHAN: Final = "orphan"
_FOREGROUND: Final = "foregroundDeletion"


def check_create(meta: Meta, *, namespaced: bool, name_check: names.NameCheck, path: str = "metadata") -> Found:
    """metadata of a new object; `name_check` is the rule of the kind for names."""
    found: Found = []
    prefix = meta.get("generateName")
    if prefix:
        masked = names.prefix_of_generated(prefix)
        found += [invalid(f"{path}.generateName", prefix, text) for text in name_check(masked)]
    name = meta.get("name")
    if not name:
        found.append(required(f"{path}.name", "name or generateName is required"))
    else:
        found += [invalid(f"{path}.name", name, text) for text in name_check(name)]
    return found + check_common(meta, namespaced=namespaced, path=path)


def check_common(meta: Meta, *, namespaced: bool, path: str = "metadata") -> Found:
    """Everything about metadata except the name."""
    found: Found = []
    namespace = meta.get("namespace")
    if namespaced:
        if not namespace:
            found.append(required(f"{path}.namespace"))
        else:
            found += [invalid(f"{path}.namespace", namespace, text) for text in names.dns_label(namespace)]
    elif namespace:
        found.append(forbidden(f"{path}.namespace", "not allowed on this type"))
    found += _check_generation(meta, path)
    found += check_labels(meta.get("labels"), f"{path}.labels")
    found += check_annotations(meta.get("annotations"), f"{path}.annotations")
    found += _check_owners(meta.get("ownerReferences") or [], f"{path}.ownerReferences")
    found += _check_finalizers(meta.get("finalizers") or [], f"{path}.finalizers")
    return found + _check_managed(meta.get("managedFields") or [], f"{path}.managedFields")


def check_update(meta: Meta, old: Meta, path: str = "metadata") -> Found:
    """metadata of a changed object: first what is checked of any object, then what may not change."""
    found = _check_generation(meta, path)
    # What is the very value that was checked when it was stored is right; most writes leave most of this alone.
    for name, check in _CHECKED:
        value = meta.get(name)
        if value and value is not old.get(name):
            found += check(value, f"{path}.{name}")
    if old.get("deletionTimestamp"):
        added = sorted(set(meta.get("finalizers") or ()) - set(old.get("finalizers") or ()))
        if added:
            listed = ", ".join(f'"{name}"' for name in added)
            found.append(
                forbidden(
                    f"{path}.finalizers",
                    "no new finalizers can be added if the object is being deleted, found new finalizers "
                    f"[]string{{{listed}}}",
                )
            )
    if not meta.get("resourceVersion"):
        found.append(invalid(f"{path}.resourceVersion", "", "must be specified for an update"))
    if (meta.get("generation") or 0) < (old.get("generation") or 0):
        found.append(invalid(f"{path}.generation", meta.get("generation") or 0, "must not be decremented"))
    for name, empty in _IMMUTABLE:
        value, before = meta.get(name, empty), old.get(name, empty)
        if value is not before:
            found += check_immutable(value, before, f"{path}.{name}")
    return found


_IMMUTABLE: Final[tuple[tuple[str, Any], ...]] = (
    ("name", ""), ("namespace", ""), ("uid", ""), ("creationTimestamp", None), ("deletionTimestamp", None),
    ("deletionGracePeriodSeconds", None),
)  # fmt: skip


def check_immutable(value: Any, old: Any, path: str, *, covered: bool = False, origin: str = "") -> Found:
    """A field that must stay as it is; absent and empty are the same."""
    if value == old or (not value and not old and isinstance(value or old or [], list | dict)):
        return []
    return [invalid(path, value, "field is immutable", covered=covered, origin=origin)]


def check_template(meta: Meta, path: str) -> Found:
    """metadata inside a template of claims: labels and annotations, nothing else."""
    found = check_annotations(meta.get("annotations"), f"{path}.annotations")
    found += check_labels(meta.get("labels"), f"{path}.labels")
    for name in _NOT_IN_TEMPLATES:
        if meta.get(name) or (name == "deletionGracePeriodSeconds" and meta.get(name) is not None):
            found.append(forbidden(f"{path}.{'uID' if name == 'uid' else name}", "cannot be set"))
    return found


_NOT_IN_TEMPLATES: Final = (
    "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp",
    "deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences", "finalizers", "managedFields",
)  # fmt: skip


def check_labels(labels: Mapping[str, str] | None, path: str) -> Found:
    """Keys and values of a label map."""
    found: Found = []
    for key, value in (labels or {}).items():
        found += [invalid(path, key, text, origin="format=k8s-label-key") for text in names.label_key(key)]
        found += [invalid(path, value, text, origin="format=k8s-label-value") for text in names.label_value(value)]
    return found


def check_conditions(conditions: Sequence[Mapping[str, Any]], path: str) -> Found:
    """A list of metav1.Condition."""
    found: Found = []
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        place = f"{path}[{index}]"
        kind = condition.get("type") or ""
        if kind in seen:
            found.append(duplicate(place, kind))
        seen.add(kind)
        found += _check_condition(condition, place)
    return found


_STATUSES: Final = ("False", "True", "Unknown")
_REASON_PATTERN: Final = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_REASON_WORDS: Final = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_'"
)


def _check_condition(condition: Mapping[str, Any], path: str) -> Found:
    found: Found = []
    kind, status, reason = condition.get("type"), condition.get("status"), condition.get("reason")
    if not kind:
        found.append(required(f"{path}.type", "is required"))
    else:
        found += [invalid(f"{path}.type", kind, text, origin="format=k8s-label-key") for text in names.label_key(kind)]
    if not status:
        found.append(required(f"{path}.status"))
    elif status not in _STATUSES:
        found.append(not_supported(f"{path}.status", status, _STATUSES))
    if (condition.get("observedGeneration") or 0) < 0:
        value = condition["observedGeneration"]
        found.append(invalid(f"{path}.observedGeneration", value, "must be greater than or equal to zero"))
    if not condition.get("lastTransitionTime"):
        found.append(required(f"{path}.lastTransitionTime"))
    if not reason:
        found.append(required(f"{path}.reason"))
    else:
        if not re.fullmatch(_REASON_PATTERN, reason, re.ASCII):
            examples = ("my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB")
            words = names.regex_complaint(_REASON_WORDS, _REASON_PATTERN, *examples)
            found.append(invalid(f"{path}.reason", reason, words))
        if len(reason.encode()) > 1024:
            found.append(too_long(f"{path}.reason", 1024))
    if len((condition.get("message") or "").encode()) > 32 * 1024:
        found.append(too_long(f"{path}.message", 32 * 1024))
    return found


def _check_generation(meta: Meta, path: str) -> Found:
    generation = meta.get("generation") or 0
    if generation >= 0:
        return []
    return [invalid(f"{path}.generation", generation, "must be greater than or equal to 0", origin="minimum")]


def check_annotations(annotations: Mapping[str, str] | None, path: str) -> Found:
    """Keys and total size of annotations."""
    found: Found = []
    size = 0
    for key, value in (annotations or {}).items():
        found += [invalid(path, key, text, origin="format=k8s-label-key") for text in names.label_key(key.lower())]
        size += len(key.encode()) + len(value.encode())
    if size > ANNOTATIONS_LIMIT:
        found.append(too_long(path, ANNOTATIONS_LIMIT))
    return found


def _check_owners(owners: Sequence[Mapping[str, Any]], path: str) -> Found:
    found: Found = []
    controller = ""
    for index, owner in enumerate(owners):
        place = f"{path}[{index}]"
        version = owner.get("apiVersion") or ""
        if not version:
            found.append(required(f"{place}.apiVersion", "must not be empty"))
        elif version.count("/") > 1 or version.endswith("/"):
            found.append(invalid(f"{place}.apiVersion", version, "must be <group>/<version> or <version>"))
        for name in ("kind", "name", "uid"):
            if not owner.get(name):
                found.append(required(f"{place}.{name}", "must not be empty"))
        if version == "v1" and owner.get("kind") == "Event":
            found.append(invalid(place, dict(owner), "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller"):
            current = f"{owner.get('kind', '')}/{owner.get('name', '')}"
            if controller:
                found.append(
                    invalid(
                        path,
                        list(owners),
                        'Only one reference can have Controller set to true. Found "true" in references for'
                        f" {controller} and {current}",
                    )
                )
            else:
                controller = current
    return found


def _check_finalizers(finalizers: Sequence[str], path: str) -> Found:
    found: Found = []
    for name in finalizers:
        found += [invalid(path, name, text) for text in names.label_key(name)]
    if _ORPHAN in finalizers and _FOREGROUND in finalizers:
        found.append(invalid(path, list(finalizers), f"finalizer {_ORPHAN} and {_FOREGROUND} cannot be both set"))
    return found


def check_qualified_finalizers(meta: Meta, path: str = "metadata") -> Found:
    """Finalizers of built-in kinds, which must be domain-qualified unless they are standard ones."""
    found: Found = []
    for index, name in enumerate(meta.get("finalizers") or ()):
        place = f"{path}.finalizers[{index}]"
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            found.append(invalid(place, name, "name is neither a standard finalizer name nor is it fully qualified"))
    return found


_STANDARD_FINALIZERS: Final = ("kubernetes", _ORPHAN, _FOREGROUND)


def _check_managed(entries: Sequence[Mapping[str, Any]], path: str) -> Found:
    found: Found = []
    for index, entry in enumerate(entries):
        place = f"{path}[{index}]"
        operation = entry.get("operation") or ""
        if not operation:
            found.append(required(f"{place}.operation", "must not be empty"))
        elif operation not in ("Apply", "Update"):
            found.append(not_supported(f"{place}.operation", operation, ("Apply", "Update")))
        kind = entry.get("fieldsType") or ""
        if kind and kind != "FieldsV1":
            found.append(invalid(f"{place}.fieldsType", kind, "must be `FieldsV1`"))
        found += check_field_manager(entry.get("manager") or "", f"{place}.manager")
        if len(entry.get("subresource") or "") > 256:
            found.append(too_long(f"{place}.subresource", 256))
    return found


def check_field_manager(manager: str, path: str = "fieldManager") -> Found:
    """The name of a field manager: at most 128 bytes, printable."""
    if manager.isascii() and manager.isprintable() and len(manager) <= 128:
        return []
    found = [too_long(path, 128)] if len(manager.encode()) > 128 else []
    position = 0
    for character in manager:
        if not (character.isprintable()):
            code = f"U+{ord(character):04X}"
            found.append(invalid(path, manager, f"invalid character {code} (at position {position})"))
        position += len(character.encode("utf-8", "replace"))
    return found


_CHECKED: Final[tuple[tuple[str, Callable[[Any, str], Found]], ...]] = (
    ("labels", check_labels),
    ("annotations", check_annotations),
    ("ownerReferences", _check_owners),
    ("finalizers", _check_finalizers),
    ("managedFields", _check_managed),
)
