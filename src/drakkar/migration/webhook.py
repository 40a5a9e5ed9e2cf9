"""The review as a validating admission webhook: warnings for the one who applies, or a refusal.

An AdmissionReview (admission.k8s.io/v1) has one object, as JSON; so rules that compare files see that object and what
is recorded of the cluster. Comments do not reach an API server: the annotation `drakkar.dev/lint-ignore` takes their
place, with a code and a reason as in files. Warnings are cut to what API servers pass on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from drakkar.errors import DrakkarError
from drakkar.kube.paths import value_at
from drakkar.migration.context import Context
from drakkar.migration.documents import read_bytes
from drakkar.migration.findings import SEVERITIES, Finding
from drakkar.migration.lint import lint_range

__all__ = ["IGNORE", "answer"]

IGNORE: Final = "drakkar.dev/lint-ignore"
_LONGEST: Final = 250
_MOST: Final = 12
_IGNORED: Final = re.compile(r"\s*([\w-]+(?:\s*,\s*[\w-]+)*)\s+\S")


def answer(
    body: bytes,
    contexts: Sequence[Context],
    *,
    deny: str = "",
    inventory: Iterable[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """The AdmissionReview that answers one. `deny` is the severity from which on objects are refused, "" for never.

    Raises DrakkarError for what is no AdmissionReview of v1.
    """
    try:
        review = json.loads(body)
    except ValueError as error:
        raise _unreadable(f"it is no JSON: {error}") from None
    request = review.get("request") if isinstance(review, dict) else None
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise _unreadable("it has no request with a uid")
    if review.get("apiVersion") != "admission.k8s.io/v1":
        raise _unreadable(f"its version is {review.get('apiVersion')!r}")
    found = _findings(request, contexts, inventory)
    worst = min((SEVERITIES.index(each.severity) for each in found), default=len(SEVERITIES))
    response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    if deny and worst <= SEVERITIES.index(deny):
        told = [each for each in found if SEVERITIES.index(each.severity) <= SEVERITIES.index(deny)]
        message = "; ".join(f"{each.path}: {each.message} [{each.code}]" for each in told)
        response |= {
            "allowed": False,
            "status": {"code": 422, "reason": "Invalid", "message": f"drakkar lint: {message}"},
        }
        found = [each for each in found if each not in told]
    if found:
        response["warnings"] = [_cut(f"{each.path}: {each.message} [{each.code}]") for each in found[:_MOST]]
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def _findings(request: Mapping[str, Any], contexts: Sequence[Context], inventory: Any) -> list[Finding]:
    obj = request.get("object")
    if not isinstance(obj, dict):
        return []
    obj = dict(obj)
    metadata = dict(obj.get("metadata") or {}) if isinstance(obj.get("metadata") or {}, dict) else {}
    if request.get("operation") == "CREATE":
        metadata.pop("uid", None)  # the API server gave it just now; nobody has scheduled the object yet
    if request.get("namespace"):
        metadata.setdefault("namespace", request["namespace"])
    obj["metadata"] = metadata
    text = json.dumps(obj, ensure_ascii=False)
    found = lint_range(read_bytes(text.encode(), "object.yaml"), contexts, inventory=inventory)
    ignored = _ignored(value_at(obj, ("metadata", "annotations", IGNORE)))
    return [each for each in found if each.code not in ignored]


def _ignored(annotation: Any) -> set[str]:
    """Codes that an annotation switches off; one without a reason switches nothing off."""
    found: set[str] = set()
    for line in str(annotation or "").splitlines():
        match = _IGNORED.match(line)
        if match:
            found |= {name.strip() for name in match[1].split(",")}
    return found


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _unreadable(problem: str) -> DrakkarError:
    return DrakkarError(
        f"this is no AdmissionReview: {problem}",
        reason="NoAdmissionReview",
        subject="request body",
        expected="an AdmissionReview of admission.k8s.io/v1, as API servers post it",
    )
