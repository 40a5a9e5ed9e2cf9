"""What is wrong with a CustomResourceDefinition: names, versions, columns, subresources, conversion, schemas.

What all versions share (schema, subresources, columns, selectable fields) Kubernetes moves to the definition itself
before it looks, and complaints name the place it was moved to. Source:
`apiextensions-apiserver/pkg/apis/apiextensions/validation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from drakkar.api import metadata
from drakkar.api.fields import FieldError, forbidden, invalid, not_supported, required
from drakkar.cel.libraries.url import URLProblem, parse_reference
from drakkar.cluster.machinery.custom.schema_structure import anywhere, check_schema
from drakkar.cluster.machinery.custom.written import check_written
from drakkar.cluster.machinery.validation import webhook_clients
from drakkar.kube import names

__all__ = ["CREATE", "UPDATE"]

Json = Mapping[str, Any]
Found = list[FieldError]
_SCOPES: Final = ("Cluster", "Namespaced")
_STRATEGIES: Final = ("None", "Webhook")
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_SHARED: Final = (
    ("schema", "Schema"), ("subresources", "Subresources"), ("additionalPrinterColumns", "AdditionalPrinterColumns"),
    ("selectableFields", "SelectableFields"),
)  # fmt: skip


def _check_name(obj: Json) -> Found:
    """The name follows from plural and group."""
    spec, name = obj.get("spec") or {}, (obj.get("metadata") or {}).get("name") or ""
    if name == f"{(spec.get('names') or {}).get('plural') or ''}.{spec.get('group') or ''}":
        return []
    return [invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')]


def _definition(obj: Json) -> Found:
    """A new definition."""
    found = _check_name(obj) + _check_spec(obj.get("spec") or {}) + _check_stored(obj)
    return found + _check_approval(obj, None) + _check_pruning(obj, None)


def _definition_update(new: Json, old: Json) -> Found:
    """A changed definition; scope and kind are free until it is established."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    wanted, known = spec.get("names") or {}, before.get("names") or {}
    found = _check_spec(spec)
    conditions = (old.get("status") or {}).get("conditions") or ()
    if any(one.get("type") == "Established" and one.get("status") == "True" for one in conditions):
        found += metadata.check_immutable(spec.get("scope"), before.get("scope"), "spec.scope")
        found += metadata.check_immutable(wanted.get("kind"), known.get("kind"), "spec.names.kind")
    found += metadata.check_immutable(spec.get("group"), before.get("group"), "spec.group")
    found += metadata.check_immutable(wanted.get("plural"), known.get("plural"), "spec.names.plural")
    return found + _check_stored(new) + _check_approval(new, old) + _check_pruning(new, old)


def _check_approval(obj: Json, old: Json | None) -> Found:
    """Groups of the Kubernetes community need a word about their review; what was said before may stay."""
    group = (obj.get("spec") or {}).get("group") or ""
    if not f".{group}".endswith((".k8s.io", ".kubernetes.io")):
        return []
    said = _approval(obj)
    if said.startswith("unapproved") or (old is not None and _approval(old) == said):
        return []
    words = f'protected groups must have approval annotation "{_APPROVAL}"'
    if not said:
        return [required(f"metadata.annotations[{_APPROVAL}]", f"{words}, see {_APPROVALS}")]
    try:
        url = parse_reference(said)
    except URLProblem:
        url = None
    if url is not None and url.scheme and url.host:
        return []
    words += f' with either a URL or a reason starting with "unapproved", see {_APPROVALS}'
    return [invalid(f"metadata.annotations[{_APPROVAL}]", said, words)]


def _approval(obj: Json) -> str:
    return str(((obj.get("metadata") or {}).get("annotations") or {}).get(_APPROVAL) or "")


_APPROVAL: Final = "api-approved.kubernetes.io"
_APPROVALS: Final = "https://github.com/kubernetes/enhancements/pull/1111"


def _check_pruning(obj: Json, old: Json | None) -> Found:
    """Unknown fields are dropped since v1; a definition of old may keep them."""
    if not (obj.get("spec") or {}).get("preserveUnknownFields"):
        return []
    if old is not None and (old.get("spec") or {}).get("preserveUnknownFields"):
        return []
    found: Found = []
    versions = (obj.get("spec") or {}).get("versions") or ()
    schemas = ((version.get("schema") or {}).get("openAPIV3Schema") or {} for version in versions)
    if any(anywhere(schema, lambda one: one.get("default") is not None) for schema in schemas):
        why = "must be false in order to use defaults in the schema"
        found.append(invalid("spec.preserveUnknownFields", True, why))
    words = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
    return [*found, invalid("spec.preserveUnknownFields", True, words)]


def _check_spec(spec: Json) -> Found:
    group, scope = spec.get("group") or "", spec.get("scope") or ""
    versions: Sequence[Json] = spec.get("versions") or []
    for version in versions:
        if (schema := (version.get("schema") or {}).get("openAPIV3Schema")) is not None:
            check_written(schema, "spec.versions.schema.openAPIV3Schema")
    common = {name for name, _ in _SHARED if all(one.get(name) == versions[0].get(name) for one in versions)}
    found: Found = []
    if not group:
        found.append(required("spec.group"))
    elif complaints := names.dns_subdomain(group):
        found.append(invalid("spec.group", group, ",".join(complaints)))
    elif "." not in group:
        found.append(invalid("spec.group", group, "should be a domain with at least one dot"))
    found += _check_word(scope, _SCOPES, "spec.scope")
    for index, version in enumerate(versions):
        if (version.get("schema") or {}).get("openAPIV3Schema") is None:
            found.append(required(f"spec.versions[{index}].schema.openAPIV3Schema"))
    for index, version in enumerate(versions):
        found += _check_version(version, common, f"spec.versions[{index}]")
    shown = _internal(versions, common) if spec.get("versions") is not None else None
    called = [version.get("name") or "" for version in versions]
    if len(set(called)) < len(called):
        found.append(invalid("spec.versions", shown, "must contain unique version names"))
    if sum(bool(version.get("storage")) for version in versions) != 1:
        found.append(invalid("spec.versions", shown, "must have exactly one version marked as storage version"))
    if called and called[0] and (complaints := names.dns_1035_label(called[0])):
        found.append(invalid("spec.version", called[0], ",".join(complaints)))
    wanted = spec.get("names") or {}
    found += [
        required(f"spec.names.{key}") for key in ("plural", "singular", "kind", "listKind") if not wanted.get(key)
    ]
    found += _check_names(wanted, "spec.names")
    if versions:
        found += _check_parts(versions[0], common, "spec", "spec.validation", status=any(map(_has_status, versions)))
    return found + _check_conversion(spec.get("conversion"), "spec.conversion")


def _check_word(value: str, accepted: tuple[str, ...], path: str) -> Found:
    if not value:
        return [required(path)]
    return [] if value in accepted else [not_supported(path, value, accepted)]


def _check_version(version: Json, common: set[str], path: str) -> Found:
    found: Found = []
    if complaints := names.dns_1035_label(version.get("name") or ""):
        found.append(invalid(f"{path}.name", version.get("name") or "", ",".join(complaints)))
    warning = version.get("deprecationWarning")
    found += [
        invalid(f"{path}.deprecationWarning", warning, text)
        for text in _warning_complaints(warning, deprecated=bool(version.get("deprecated")))
    ]
    own = {name for name, _ in _SHARED} - common
    return found + _check_parts(version, own, path, f"{path}.schema", status=_has_status(version))


def _has_status(version: Json) -> bool:
    return (version.get("subresources") or {}).get("status") is not None


def _warning_complaints(warning: str | None, *, deprecated: bool) -> list[str]:
    if warning is None:
        return []
    if not deprecated:
        return ["can only be set for deprecated versions"]
    found = ["must be <= 256 characters long"] if len(warning.encode()) > 256 else []
    if not warning:
        found.append("must not be an empty string")
    position = 0
    for character in warning:
        if not character.isprintable():
            words = "must only contain printable UTF-8 characters; non-printable character found at index"
            return [*found, f"{words} {position}"]
        position += len(character.encode("utf-8", "replace"))
    return found


def _check_parts(version: Json, parts: set[str], path: str, validation: str, *, status: bool) -> Found:
    """The parts of a version that stand at `path`; its schema stands at `validation`."""
    found: Found = []
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    subresources = version.get("subresources") or {}
    if "schema" in parts and schema is not None:
        found += _check_openapi(schema, f"{validation}.openAPIV3Schema", status=status)
    if "subresources" in parts and subresources.get("scale") is not None:
        found += _check_scale(subresources["scale"], f"{path}.subresources.scale")
    if "additionalPrinterColumns" in parts:
        for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
            found += _check_column(column, f"{path}.additionalPrinterColumns[{index}]")
    if "selectableFields" in parts and version.get("selectableFields") and schema is None:
        found.append(invalid(f"{path}.selectableFields", "", _SELECTABLE[path == "spec"]))
    elif "selectableFields" in parts and version.get("selectableFields"):
        from drakkar.cluster.machinery.custom.schema_rules import check_selectable_fields

        found += check_selectable_fields(version["selectableFields"], schema or {}, f"{path}.selectableFields")
    return found


_SELECTABLE: Final = (
    "may only be set when `version.schema.openAPIV3Schema` is not included",
    "may only be set when validations.schema is included",
)


def _check_openapi(schema: dict[str, Any], path: str, *, status: bool) -> Found:
    found = check_schema(schema, path, status=status)
    if anywhere(schema, lambda one: bool(one.get("x-kubernetes-validations"))):
        from drakkar.cluster.machinery.custom.schema_rules import check_schema_rules

        found += check_schema_rules(schema, path)
    return found


def _check_scale(scale: Json, path: str) -> Found:
    found: Found = []
    for name, root in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        value = scale.get(name) or ""
        if not value:
            found.append(required(f"{path}.{name}"))
        elif not value.startswith("."):
            found.append(invalid(f"{path}.{name}", value, _DOT))
        elif not value.startswith(root):
            found.append(invalid(f"{path}.{name}", value, f"should be a json path under {root[:-1]}"))
    value = scale.get("labelSelectorPath") or ""
    if value and not value.startswith("."):
        found.append(invalid(f"{path}.labelSelectorPath", value, _DOT))
    elif value and not value.startswith((".spec.", ".status.")):
        words = "should be a json path under either .spec or .status"
        found.append(invalid(f"{path}.labelSelectorPath", value, words))
    return found


_DOT: Final = "must be a simple json path starting with ."


def _check_column(column: Json, path: str) -> Found:
    kind, form, place = column.get("type") or "", column.get("format") or "", column.get("jsonPath") or ""
    found = [] if column.get("name") else [required(f"{path}.name")]
    types = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not kind:
        found.append(required(f"{path}.type", types))
    elif kind not in _COLUMN_TYPES:
        found.append(invalid(f"{path}.type", kind, types))
    if form and form not in _COLUMN_FORMATS:
        found.append(invalid(f"{path}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}"))
    if not place:
        found.append(required(f"{path}.JSONPath"))
    elif not place.startswith("."):
        found.append(invalid(f"{path}.JSONPath", place, _DOT))
    return found


def _check_names(wanted: Json, path: str) -> Found:
    found: Found = []
    for key in ("plural", "singular", "kind", "listKind"):
        value = wanted.get(key) or ""
        mixed = key in ("kind", "listKind")
        complaints = names.dns_1035_label(value.lower() if mixed else value) if value else []
        if complaints:
            words = "may have mixed case, but should otherwise match: " if mixed else ""
            found.append(invalid(f"{path}.{key}", value, words + ",".join(complaints)))
    found += _check_listed(wanted.get("shortNames") or (), f"{path}.shortNames")
    if wanted.get("kind") and wanted["kind"] == wanted.get("listKind"):
        found.append(invalid(f"{path}.listKind", wanted["listKind"], "kind and listKind may not be the same"))
    return found + _check_listed(wanted.get("categories") or (), f"{path}.categories")


def _check_listed(listed: Sequence[str], path: str) -> Found:
    found: Found = []
    for index, name in enumerate(listed):
        if complaints := names.dns_1035_label(name):
            found.append(invalid(f"{path}[{index}]", name, ",".join(complaints)))
    return found


def _check_conversion(conversion: Json | None, path: str) -> Found:
    if conversion is None:
        return []
    strategy, webhook = conversion.get("strategy") or "", conversion.get("webhook")
    found = _check_word(strategy, _STRATEGIES, f"{path}.strategy")
    if strategy != "Webhook":
        if webhook is not None:
            words = "should not be set when strategy is not set to Webhook"
            if webhook.get("clientConfig") is not None:
                found.append(forbidden(f"{path}.webhookClientConfig", words))
            if webhook.get("conversionReviewVersions"):
                found.append(forbidden(f"{path}.conversionReviewVersions", words))
        return found
    config, versions = ((webhook or {}).get(name) for name in ("clientConfig", "conversionReviewVersions"))
    if config is None:
        found.append(required(f"{path}.webhookClientConfig", "required when strategy is set to Webhook"))
    else:
        found += webhook_clients.check_client(_as_handed_over(config), f"{path}.webhookClientConfig")
    path = f"{path}.conversionReviewVersions"
    return found + (webhook_clients.check_review_versions(versions, path) if versions else [required(path)])


def _as_handed_over(config: Json) -> Json:
    """The original hands over name and namespace of a service in the wrong order."""
    service = config.get("service")
    if service is None:
        return config
    return {**config, "service": {**service, "name": service.get("namespace"), "namespace": service.get("name")}}


def _check_stored(obj: Json) -> Found:
    """Versions that objects may be stored in must stay."""
    stored: list[str] = (obj.get("status") or {}).get("storedVersions") or []
    path = "status.storedVersions"
    if not stored:
        return [invalid(path, None, "must have at least one stored version")]
    versions = (obj.get("spec") or {}).get("versions") or []
    found: Found = []
    left = set(stored)
    for version in versions:
        name = version.get("name") or ""
        if version.get("storage") and name not in left:
            found.append(invalid(path, stored, f"must have the storage version {name}"))
        left.discard(name)
    for index, name in enumerate(stored):
        if name in left:
            words = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions"
                f" until a storage migration ensures no data remains persisted in {name} and removes {name} from"
                " status.storedVersions"
            )
            found.append(invalid(f"{path}[{index}]", name, words))
    return found


def _internal(versions: Sequence[Json], common: set[str]) -> list[dict[str, Any]]:
    """Versions as the server prints its internal type; what was moved away is null there."""
    return [
        {
            "Name": version.get("name") or "",
            "Served": bool(version.get("served")),
            "Storage": bool(version.get("storage")),
            "Deprecated": bool(version.get("deprecated")),
            "DeprecationWarning": version.get("deprecationWarning"),
        }
        | {shown: None if name in common else version.get(name) for name, shown in _SHARED}
        for version in versions
    ]


CREATE: Final[dict[str, Callable[[Json], Found]]] = {"CustomResourceDefinition": _definition}
UPDATE: Final[dict[tuple[str, str], Callable[[Json, Json], Found]]] = {
    ("CustomResourceDefinition", ""): _definition_update
}
