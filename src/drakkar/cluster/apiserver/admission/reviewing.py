"""The AdmissionReview that a webhook is sent, and what its answer means (admission.k8s.io/v1 and v1beta1).

Every way in which an answer can be wrong has Kubernetes' words, since people find the fault of their webhook by them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from drakkar.api.fields import quote
from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.admission.asked import Asked, Value, request_of
from drakkar.cluster.apiserver.resources import ApiResource

__all__ = ["CallFailure", "Response", "denial", "read_response", "review"]

GROUP: Final = "admission.k8s.io"
VERSIONS: Final = ("v1", "v1beta1")
JSON_PATCH: Final = "JSONPatch"


class CallFailure(Exception):
    """The webhook could not be asked, or gave no proper answer: its failure policy decides what that means."""


class Response(msgspec.Struct):
    """A webhook's answer. `patch` is the text of a JSON patch, empty without one."""

    allowed: bool
    status: Value | None
    warnings: list[str]
    patch: bytes = b""
    patch_type: str = ""


def version_for(webhook: Mapping[str, Any]) -> str:
    """The first version of AdmissionReview that the webhook and this server know. Raises `CallFailure`."""
    for version in webhook.get("admissionReviewVersions") or ():
        if version in VERSIONS:
            return str(version)
    raise CallFailure(
        "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)"
    )


def review(asked: Asked, row: ApiResource, version: str, uid: str, obj: Value | None, old: Value | None) -> Value:
    """The AdmissionReview about a request as `row` serves its kind; `obj` and `old` are in that version."""
    request = {"uid": uid, **request_of(asked, row)}
    request |= {"object": obj, "oldObject": old, "options": asked.given_options()}
    return {"kind": "AdmissionReview", "apiVersion": f"{GROUP}/{version}", "request": request}


def read_response(body: Value, version: str, uid: str, *, mutating: bool) -> Response:
    """What a webhook answered. Raises `CallFailure`."""
    _check_kind(body, version)
    response = body.get("response")
    if not isinstance(response, dict):
        raise _improper("webhook response was absent")
    if version == "v1":
        _check_v1(body, response, uid, mutating=mutating)
    patch = response.get("patch") if mutating else None
    patch_type = response.get("patchType") or ""
    status = response.get("status")
    return Response(
        bool(response.get("allowed")),
        status if isinstance(status, dict) else None,
        [str(text) for text in response.get("warnings") or ()],
        _decoded(patch) if patch else b"",
        (patch_type if version == "v1" else JSON_PATCH) if patch else "",
    )


def _check_kind(body: Value, version: str) -> None:
    """The answer must be a review of the version that was asked for, as far as it says what it is."""
    kind, given = body.get("kind") or "AdmissionReview", body.get("apiVersion") or f"{GROUP}/{version}"
    if kind != "AdmissionReview" or given not in (f"{GROUP}/v1", f"{GROUP}/v1beta1"):
        raise CallFailure(
            f'failed to call webhook: no kind "{kind}" is registered for version "{given}" in scheme'
            ' "pkg/runtime/scheme.go:111"'
        )
    if given != f"{GROUP}/{version}":
        other = given.rpartition("/")[2]
        raise CallFailure(
            f"failed to call webhook: converting ({other}.AdmissionReview) to ({version}.AdmissionReview): unknown"
            " conversion"
        )


def _check_v1(body: Value, response: Value, uid: str, *, mutating: bool) -> None:
    if response.get("uid", "") != uid:
        raise _improper(f"expected response.uid={quote(uid)}, got {quote(str(response.get('uid') or ''))}")
    if body.get("kind") != "AdmissionReview" or body.get("apiVersion") != f"{GROUP}/v1":
        got = f"{body.get('apiVersion') or ''}, Kind={body.get('kind') or ''}"
        raise _improper(f"expected webhook response of {GROUP}/v1, Kind=AdmissionReview, got {got}")
    patch, patch_type = response.get("patch"), response.get("patchType")
    if not mutating:
        if patch:
            raise _improper("validating webhook may not return response.patch")
        if patch_type is not None:
            raise _improper("validating webhook may not return response.patchType")
        return
    if patch and patch_type is None:
        raise _improper("webhook returned response.patch but not response.patchType")
    if not patch and patch_type is not None:
        raise _improper("webhook returned response.patchType but not response.patch")
    if patch_type == "":
        raise _improper('webhook returned invalid response.patchType of ""')


def _improper(why: str) -> CallFailure:
    return CallFailure(f"received invalid webhook response: {why}")


def _decoded(patch: Any) -> bytes:
    try:
        return base64.b64decode(str(patch), validate=True)
    except (binascii.Error, ValueError):
        raise CallFailure("failed to call webhook: illegal base64 data in response.patch") from None


def denial(name: str, status: Mapping[str, Any] | None) -> statuses.StatusError:
    """The refusal that a webhook's status makes: its code, reason and details, and a message that says who refused."""
    given = status or {}
    told = given.get("message") or given.get("reason") or ""
    denied = f"admission webhook {quote(name)} denied the request"
    code = given.get("code")
    answer: Value = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": given["status"] if given.get("status") not in (None, "", "Success") else "Failure",
        "message": f"{denied}: {told}" if told else f"{denied} without explanation",
    }
    if given.get("reason"):
        answer["reason"] = given["reason"]
    if isinstance(given.get("details"), dict):
        answer["details"] = given["details"]
    answer["code"] = code if isinstance(code, int) and code >= 400 else 400
    return statuses.StatusError(answer)
