"""The behaviour of a custom kind: the same questions that built-in kinds answer, answered from a schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from drakkar.api import metadata
from drakkar.api.fields import FieldError
from drakkar.cluster.machinery import jsontext, strictness
from drakkar.cluster.machinery.custom import checks, structural
from drakkar.cluster.machinery.kinds import Decoded, DecodeError, Kind, Rules
from drakkar.cluster.machinery.schemas import Struct, struct_of
from drakkar.cluster.machinery.shapes import Findings, ShapeError, shape
from drakkar.kube import names, yamltext

if TYPE_CHECKING:
    from drakkar.cluster.machinery.custom.rules import SchemaRules

Json = dict[str, Any]


class CustomKind(Kind):
    """One version of one custom resource. `openapi` is its structural schema, or an empty one that keeps everything."""

    __slots__ = ("_rules", "_told", "openapi")

    def __init__(self, group: str, version: str, kind: str, openapi: Json, *, namespaced: bool, status: bool) -> None:
        super().__init__(group, version, kind, cast(Struct, None))
        self.rules = Rules(namespaced=namespaced, status=status, generation=True, unconditional=False)
        self.openapi = openapi
        self._rules: SchemaRules | bool | None = True  # not looked for yet
        self._told: tuple[int, list[str]] = (0, [])

    def decode(self, body: bytes, content_type: str = strictness.JSON, field_validation: str = "Warn") -> Decoded:
        """A JSON or YAML body, pruned."""
        yaml = strictness.media_type(content_type) == strictness.YAML
        try:
            value, duplicates = yamltext.parse(body) if yaml else jsontext.parse(body)
        except (jsontext.JsonError, yamltext.YamlError) as error:
            raise DecodeError(f"error decoding the object: {error}") from None
        if not isinstance(value, dict):
            raise DecodeError("couldn't get version/kind; json parse error: expected an object")
        return self._shaped(value, field_validation, duplicates)

    def shape(
        self, obj: Json, field_validation: str = "Warn", *, source: str = "json", known: Json | None = None
    ) -> Decoded:
        """An already parsed object, pruned."""
        del source, known
        if not isinstance(obj, dict):
            raise DecodeError("couldn't get version/kind; json parse error: expected an object")
        return self._shaped(obj, field_validation, [])

    def _shaped(self, value: Json, field_validation: str, duplicates: list[str]) -> Decoded:
        strictness.check_type_meta(value, self.group_version, self.kind)
        unknown: list[str] = []
        found = structural.prune(value, self.openapi, unknown.append, root=True)
        findings = Findings()
        try:
            meta = shape(found.get("metadata") or {}, _metadata_struct(), findings)
        except ShapeError as error:
            raise DecodeError(f"unable to decode metadata: {error}") from None
        rest = {key: part for key, part in found.items() if key not in ("apiVersion", "kind", "metadata")}
        obj = {"kind": self.kind, "apiVersion": self.group_version, "metadata": meta, **rest}
        messages = strictness.strict_messages(duplicates, [f'unknown field "{path}"' for path in unknown])
        if messages and field_validation == "Strict":
            text = f"strict decoding error: {', '.join(messages)}"
            raise DecodeError(f'{self.kind} in version "{self.version}" cannot be handled as a {self.kind}: {text}')
        return Decoded(obj, messages if field_validation == "Warn" else [])

    def default(self, obj: Json, *, now: str, known: Json | None = None) -> Json:
        """Defaults of the schema."""
        del now, known
        filled: Json = structural.default(obj, self.openapi)
        return filled

    def prepare_create(self, obj: Json) -> Json:
        """Generation 1; a status only where it is no subresource."""
        made = {key: part for key, part in obj.items() if key != "status" or not self.rules.status}
        return {**made, "metadata": {**made["metadata"], "generation": 1}}

    def prepare_update(self, new: Json, old: Json, subresource: str = "") -> Json:
        """Only what the path may write; every change outside metadata and status counts as a generation."""
        if subresource == "status":
            meta = {**old["metadata"], "resourceVersion": new["metadata"].get("resourceVersion")}
            if "managedFields" in new["metadata"]:
                meta["managedFields"] = new["metadata"]["managedFields"]
            kept = {key: part for key, part in old.items() if key != "status"}
            return {**kept, "metadata": meta, **({"status": new["status"]} if "status" in new else {})}
        obj = new
        if self.rules.status:
            obj = {key: part for key, part in new.items() if key != "status"}
            if "status" in old:
                obj["status"] = old["status"]
        generation = int(old["metadata"].get("generation") or 0)
        if _spec_of(obj, status=self.rules.status) != _spec_of(old, status=self.rules.status):
            generation += 1
        return {**obj, "metadata": {**obj["metadata"], "generation": generation}}

    def validate_create(self, obj: Json) -> list[FieldError]:
        """Metadata, then the schema."""
        found = metadata.check_create(obj["metadata"], namespaced=self.rules.namespaced, name_check=names.dns_subdomain)
        found += checks.check(obj, self.openapi, root=True)
        found += checks.check_lists(obj, self.openapi)
        return self._judged(found, obj, None)

    def validate_update(self, new: Json, old: Json, subresource: str = "") -> list[FieldError]:
        """Metadata, then the schema: only what has become wrong."""
        del subresource
        found = metadata.check_update(new["metadata"], old["metadata"])
        found += checks.check(new, self.openapi, root=True, old=old)
        doubled = list(checks.check_lists(new, self.openapi))
        if doubled and next(checks.check_lists(old, self.openapi), None) is None:
            found += doubled
        return self._judged(found, new, old)

    def warnings(self, new: Json, old: Json | None = None) -> list[str]:
        """Rules that do not hold, but for what they did not hold for before."""
        told, self._told = self._told, (0, [])
        return told[1] if told[0] == id(new) else []

    def _judged(self, found: list[FieldError], obj: Json, old: Json | None) -> list[FieldError]:
        """With what the rules of the schema say; they are not asked about an object of the wrong shape."""
        if self._rules is True:
            from drakkar.cluster.machinery.custom.rules import rules_of

            self._rules = rules_of(self.openapi)
        if self._rules is None:
            return found
        if any(error.type in _BLOCKING for error in found):
            return [*found, FieldError("FieldValueInvalid", "<nil>", _UNCHECKED)]
        from drakkar.cluster.machinery.custom.rules import Judgement

        judgement = Judgement(cast("SchemaRules", self._rules), obj, old)
        self._told = id(obj), judgement.warnings
        return [*found, *judgement.errors]


_BLOCKING: Final = (
    "FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid",
)  # fmt: skip
_UNCHECKED: Final = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete"
    " validation"
)


def _metadata_struct() -> Struct:
    struct = struct_of("v1", "ConfigMap")
    assert struct is not None
    return struct.fields["metadata"].type.struct


def _spec_of(obj: Json, *, status: bool) -> Json:
    return {key: part for key, part in obj.items() if key != "metadata" and not (status and key == "status")}
