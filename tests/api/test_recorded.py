"""Writes to resource.k8s.io that a Kubernetes 1.37 server was asked for, decided by the pure functions alone.

The recordings of `tests/conformance/http` say what the server answered; here every POST, PUT and PATCH of a recording
goes through decode or patch, default, prepare and validate, without a server, and must end as recorded: the same
Status with the same causes in the same order, or the same spec and status.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from drakkar.cluster.machinery import patching
from drakkar.cluster.machinery.kinds import DecodeError, kind_of
from tests.conformance.replay.values import Bindings, Loader, unify

HTTP = Path(__file__).parents[1] / "conformance" / "http"
NOW = "2026-01-01T00:00:00Z"
GROUP = "resource.k8s.io"
KINDS = {
    "resourceclaims": "ResourceClaim",
    "resourceclaimtemplates": "ResourceClaimTemplate",
    "resourceslices": "ResourceSlice",
    "deviceclasses": "DeviceClass",
    "devicetaintrules": "DeviceTaintRule",
}
PATH = re.compile(r"/apis/resource\.k8s\.io/v1/(?:namespaces/([^/]+)/)?([a-z]+)(?:/([^/?]+))?(?:/(status))?(\?.*)?")
PATTERNS = ("immutable-*", "invalid-*", "crud-*", "defaults-*", "devicetaintrule-status", "claim-status")
RECORDINGS = sorted(path for pattern in PATTERNS for path in HTTP.glob(f"{pattern}.yaml"))
PATCHES = {patching.JSON_PATCH, patching.MERGE_PATCH, patching.STRATEGIC_PATCH}
# What the server itself decides, not the object's own rules: existence, versions, rights, admission.
OTHERS = {403, 404, 405, 409}
SERVERS = ("admin access to devices requires the", "must be specified for an update")
KNOWN = {
    ("invalid-claim-requests", "empty expression"): "the CEL room reports another column for an empty text",
    ("devicetaintrule-status", "remove by key"): "recorded beside a controller that had added a condition",
}


class World:
    """The objects that were accepted so far."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str | None, str, str], dict[str, Any]] = {}

    def write(self, request: dict[str, Any]) -> tuple[int, Any] | None:
        """The status code and body for a write, or None for one that this file is not about."""
        match = PATH.fullmatch(request["path"])
        method = request["method"]
        if method not in ("POST", "PUT", "PATCH") or not match or "body" not in request:
            return None
        namespace, plural, name, subresource, query = match.groups()
        kind = kind_of(GROUP, "v1", KINDS.get(plural, ""))
        old = self.stored.get((namespace, plural, name))
        if kind is None or (method == "POST") != (old is None):
            return None
        mode = re.search(r"fieldValidation=(\w+)", query or "")
        validation = mode.group(1) if mode else "Warn"
        body = request["body"] if isinstance(request["body"], str) else json.dumps(request["body"])
        media = (request.get("headers") or {}).get("Content-Type", "application/json")
        try:
            if method == "PATCH":
                if media not in PATCHES:
                    return None
                decoded = patching.patch(kind, old or {}, body.encode(), media, field_validation=validation)
            else:
                decoded = kind.decode(body.encode(), media, validation)
        except (DecodeError, patching.PatchError) as error:
            return error.code, error.status()
        obj = kind.default(decoded.object, now=NOW)
        if old is None:
            obj = kind.prepare_create(obj)
            obj["metadata"] = {**obj["metadata"], "creationTimestamp": NOW, "uid": f"uid-{len(self.stored)}"}
            if namespace:
                obj["metadata"]["namespace"] = namespace
            errors = kind.validate_create(obj)
        else:
            parts = ("uid", "creationTimestamp", "generation")
            kept = {part: old["metadata"][part] for part in parts if part in old["metadata"]}
            obj["metadata"] = {"namespace": namespace, **obj["metadata"], **kept, "resourceVersion": "1"}
            if not namespace:
                del obj["metadata"]["namespace"]
            obj = kind.prepare_update(obj, old, subresource or "")
            errors = kind.validate_update(obj, old, subresource or "")
        if errors:
            return 422, kind.invalid_status(obj, errors)
        if "dryRun" not in (query or ""):
            self.stored[namespace, plural, obj["metadata"].get("name", "")] = obj
        return (201 if old is None else 200), obj


def differences(recorded: dict[str, Any], ignored: list[str], code: int, body: Any) -> list[str]:
    if recorded["status"] != code:
        return [f"status {code}, recorded {recorded['status']}: {body.get('message') or body}"]
    if code >= 400:
        return unify(recorded["body"], body, Bindings(), {})
    return [
        line
        for part in ("spec", "status")
        if part not in ignored
        for line in unify(recorded["body"].get(part), body.get(part), Bindings(), {}, part)
    ]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_recorded_answers(path: Path) -> None:
    recording = yaml.load(path.read_text(), Loader)
    world, wrong, decided = World(), [], 0
    for step in recording.get("setup", []) + recording["steps"]:
        recorded = step.get("response")
        if "request" not in step or (recorded and recorded["status"] in OTHERS):
            continue
        if any(text in str(recorded) for text in SERVERS) or (path.stem, step.get("name")) in KNOWN:
            continue
        answer = world.write(step["request"])
        if answer is None or recorded is None:
            continue
        decided += 1
        wrong += [f"{step['name']}: {line}" for line in differences(recorded, step.get("ignore", []), *answer)]
    assert not wrong, "\n".join(wrong)
    assert decided or path.stem == "invalid-pod-claims", "nothing in this recording was decided here"
