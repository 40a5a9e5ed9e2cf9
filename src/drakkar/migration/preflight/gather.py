"""Reads the facts for the checks: from a live cluster through a client, or from a captured bundle.

Everything is optional: who may not read Secrets or metrics still gets the other checks, and an honest "unknown".
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

from drakkar.errors import DrakkarError
from drakkar.evidence.snapshot import Snapshot
from drakkar.evidence.take import take
from drakkar.kube.apierrors import ApiError
from drakkar.kube.client import Client
from drakkar.kube.resources import SECRETS
from drakkar.kube.transport import ApiRequest
from drakkar.migration.context import kubernetes as known
from drakkar.migration.preflight.facts import HELM_SECRET, ClusterFacts, Release, releases_of

_GROUPS: Final = (
    "resource.k8s.io/v1",
    "admissionregistration.k8s.io/v1",
    "monitoring.coreos.com/v1",
)
_GATE: Final = re.compile(r'^kubernetes_feature_enabled\{name="([^"]+)"[^}]*\}\s+([01])', re.MULTILINE)


async def gather(client: Client, snapshot: Snapshot | None = None) -> ClusterFacts:
    """The facts of a live cluster.

    Raises:
        ApiError, UnreachableError: as `evidence.take.take` does.
    """
    snapshot = await take(client, logs_of=()) if snapshot is None else snapshot
    unread: dict[str, str] = {}
    served, gates, releases = await asyncio.gather(_served(client), _gates(client), _releases(client))
    for name, value in (("served", served), ("gates", gates), ("releases", releases)):
        if isinstance(value, str):
            unread[name] = value
    return ClusterFacts(
        snapshot,
        None if isinstance(served, str) else served,
        None if isinstance(gates, str) else gates,
        None if isinstance(releases, str) else releases,
        unread,
    )


def recorded(snapshot: Snapshot) -> ClusterFacts:
    """The facts in a captured bundle: releases from its Secrets, what is served by its version's defaults."""
    secrets = snapshot.all("Secret")
    facts = ClusterFacts(snapshot, releases=releases_of(secrets) if secrets else None)
    if facts.minor is None:
        return facts
    kinds = {
        "resource.k8s.io/v1": ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"),
        "admissionregistration.k8s.io/v1": ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    }
    served = {
        f"{version}/{_plural(kind)}"
        for version, names in kinds.items()
        for kind in names
        if known().served(*_group_and_version(version), kind, facts.minor, {})
    }
    return ClusterFacts(snapshot, frozenset(served), None, facts.releases, {"gates": "a bundle has no gates"})


def _group_and_version(api_version: str) -> tuple[str, str]:
    group, _, version = api_version.partition("/")
    return group, version


def _plural(kind: str) -> str:
    word = kind.lower()
    return word[:-1] + "ies" if word.endswith("y") else word + ("es" if word.endswith("ss") else "s")


async def _served(client: Client) -> frozenset[str] | str:
    found: set[str] = set()
    try:
        for group in _GROUPS:
            body = await _get(client, f"/apis/{group}")
            if isinstance(body, dict):
                found |= {f"{group}/{one.get('name')}" for one in body.get("resources") or ()}
    except (DrakkarError, OSError) as error:
        return str(error)
    return frozenset(found)


async def _gates(client: Client) -> dict[str, bool] | str:
    try:
        answer = await client.transport.send(ApiRequest("GET", "/metrics", {}, {}, None))
    except (DrakkarError, OSError) as error:
        return str(error)
    if answer.status != 200:
        return f"the API server's metrics cannot be read (status {answer.status})"
    text = answer.body.decode("utf-8", "replace") if isinstance(answer.body, bytes) else str(answer.body)
    found = {name: value == "1" for name, value in _GATE.findall(text)}
    return found or "the API server's metrics do not name feature gates"


async def _releases(client: Client) -> tuple[Release, ...] | str:
    try:
        secrets = await client.list(SECRETS, label_selector="owner=helm", field_selector=f"type={HELM_SECRET}")
    except ApiError as error:
        return error.message
    return releases_of({**one, "type": one.get("type", HELM_SECRET)} for one in secrets.items)


async def _get(client: Client, path: str) -> Any:
    answer = await client.transport.send(ApiRequest("GET", path, {}, {}, None))
    return answer.body if answer.status == 200 else None
