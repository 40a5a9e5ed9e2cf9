"""What is known of a cluster that a driver may be installed in; what could not be read is None, with the reason.

Helm keeps each revision of a release in a Secret (type `helm.sh/release.v1`): gzipped JSON in base64, once more encoded
as every Secret is. From there come the chart's name, versions and values, and the history of what was installed before.
"""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from drakkar.evidence.snapshot import Snapshot

HELM_SECRET: Final = "helm.sh/release.v1"  # noqa: S105 - a type of Secret
_MAX_BYTES: Final = 16 << 20


class Setting(NamedTuple):
    """A feature gate as a component reports it."""

    name: str
    enabled: bool


@dataclass(frozen=True, slots=True)
class Release:
    """One revision of a Helm release."""

    name: str
    namespace: str
    revision: int
    status: str
    chart: str
    version: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ClusterFacts:
    """A cluster before an installation.

    Attributes:
        snapshot: its objects (nodes, pods, slices, claims, classes).
        served: `group/version/resource` of what the API server serves; None if discovery could not be read.
        gates: feature gates of the API server; None if its metrics could not be read.
        releases: every revision of every Helm release; None if Secrets could not be read.
        unread: why something is None, by the name of the attribute.
    """

    snapshot: Snapshot
    served: frozenset[str] | None = None
    gates: Mapping[str, bool] | None = None
    releases: tuple[Release, ...] | None = None
    unread: Mapping[str, str] = field(default_factory=dict)

    @property
    def minor(self) -> int | None:
        """37 for Kubernetes 1.37.2; None if the version is unknown."""
        parts = self.snapshot.kubernetes_version.split(".")
        return int(parts[1]) if len(parts) > 1 and parts[1].isdecimal() else None

    def why(self, attribute: str) -> str:
        """Why an attribute is None."""
        return self.unread.get(attribute, "it was not captured")


def releases_of(secrets: Iterable[Mapping[str, Any]]) -> tuple[Release, ...]:
    """The releases in Secrets, oldest revision first; what is no release, or damaged, is left out."""
    found = [release for secret in secrets if (release := _release(secret)) is not None]
    return tuple(sorted(found, key=lambda one: (one.namespace, one.name, one.revision)))


def _release(secret: Mapping[str, Any]) -> Release | None:
    if secret.get("type") != HELM_SECRET:
        return None
    try:
        outer = base64.b64decode((secret.get("data") or {})["release"])
        inner = base64.b64decode(outer)
        if inner[:2] == b"\x1f\x8b":
            inner = _unzipped(inner)
        document = json.loads(inner)
        chart = document["chart"]["metadata"]
        return Release(
            str(document["name"]),
            str(document.get("namespace", "")),
            int(document.get("version", 0)),
            str((document.get("info") or {}).get("status", "")),
            str(chart["name"]),
            str(chart["version"]),
            merged((document["chart"].get("values") or {}), document.get("config") or {}),
        )
    except (KeyError, TypeError, ValueError, OSError, EOFError, zlib.error, AttributeError):
        return None


def _unzipped(data: bytes) -> bytes:
    import io

    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        return file.read(_MAX_BYTES)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Helm's own rule: mappings are merged, everything else is replaced, null takes away."""
    result = dict(base)
    for key, value in over.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result
