"""Which representation a client accepts: the Accept header as go-restful and apiserver's negotiation read it.

Two filters stand behind each other in Kubernetes, and they refuse with different words: the router compares bare media
types, then the negotiation of the API looks for a clause whose conversion (``as=Table``) it can do.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from drakkar.cluster.apiserver import statuses

JSON: Final = "application/json"
YAML: Final = "application/yaml"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
OBJECT_TYPES: Final = (JSON, YAML, PROTOBUF)
CUSTOM_TYPES: Final = (JSON, YAML)
WATCH_TYPES: Final = (JSON,)
"""Events are JSON lines; clients that would rather have protobuf accept those too."""

CONVERSIONS: Final = {
    ("Table", "meta.k8s.io", "v1"),
    ("Table", "meta.k8s.io", "v1beta1"),
    ("PartialObjectMetadata", "meta.k8s.io", "v1"),
    ("PartialObjectMetadata", "meta.k8s.io", "v1beta1"),
    ("PartialObjectMetadataList", "meta.k8s.io", "v1"),
    ("PartialObjectMetadataList", "meta.k8s.io", "v1beta1"),
}
DISCOVERY: Final = ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2")


class Representation(msgspec.Struct, frozen=True):
    """`convert` is the kind to convert to (``Table`` …, empty: none) in `version` of its group."""

    media_type: str = JSON
    convert: str = ""
    version: str = ""

    @property
    def content_type(self) -> str:
        if self.convert == DISCOVERY[0]:
            return f"{self.media_type};g={DISCOVERY[1]};v={DISCOVERY[2]};as={DISCOVERY[0]}"
        return self.media_type


PLAIN: Final = Representation()


def negotiate(
    accept: str, offered: tuple[str, ...] = OBJECT_TYPES, *, tables: bool = True, discovery: bool = False
) -> Representation:
    """The representation to answer in; raises `StatusError` 406."""
    if not accept or accept == "*/*" or accept == offered[0]:
        return PLAIN if offered[0] == JSON else Representation(offered[0])
    answer = _negotiate(accept, offered, tables, discovery)
    if answer is None:
        raise statuses.not_acceptable(offered)
    if answer is _INCONVERTIBLE:
        raise statuses.not_convertible(offered)
    return answer


_INCONVERTIBLE: Final = Representation("", "?")


@lru_cache(maxsize=512)
def _negotiate(accept: str, offered: tuple[str, ...], tables: bool, discovery: bool) -> Representation | None:
    clauses = _clauses(accept)
    if not any(_fits(media_type, kind) for media_type, _, _ in clauses for kind in offered):
        return None
    for media_type, parameters, _ in sorted(clauses, key=lambda clause: -clause[2]):
        for kind in offered:
            if not _fits(media_type, kind):
                continue
            wanted = parameters.get("as", "")
            if not wanted:
                return Representation(kind)
            conversion = (wanted, parameters.get("g", ""), parameters.get("v", ""))
            if (tables and conversion in CONVERSIONS) or (discovery and conversion == DISCOVERY):
                return Representation(kind, wanted, conversion[2])
    return _INCONVERTIBLE


def _clauses(accept: str) -> list[tuple[str, dict[str, str], float]]:
    found = []
    for clause in accept.split(","):
        media_type, *parts = (part.strip() for part in clause.split(";"))
        parameters = dict(part.split("=", 1) for part in parts if "=" in part)
        try:
            quality = float(parameters.get("q", "1"))
        except ValueError:
            quality = 1.0
        if media_type:
            found.append((media_type.lower(), parameters, quality))
    return found


def _fits(wanted: str, kind: str) -> bool:
    return wanted in ("*/*", kind) or (wanted.endswith("/*") and kind.startswith(wanted[:-1]))
