"""Claims as a whole: their size, and admin access."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from drakkar.migration.claims import ALL, Claim
from drakkar.migration.documents import Steps
from drakkar.migration.findings import Finding
from drakkar.migration.review import Review
from drakkar.migration.rules import rule

_ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"
_OLD_ADMIN_LABEL: Final = "resource.k8s.io/admin-access"


@rule("claims")
def too_large(review: Review) -> Iterator[Finding]:
    """More than 32 devices in one claim: nothing can ever allocate it."""
    for claim in review.claims:
        least = [min((0 if each.all else each.count for each in group), default=0) for group in claim.groups()]
        if sum(least) > ALL:
            steps = _largest(claim) if len([count for count in least if count]) == 1 else (*claim.steps, "requests")
            yield claim.document.finding(
                "claim-too-large",
                steps,
                f"the claim asks for {sum(least)} devices; a claim holds at most {ALL}, so it is never allocated",
            )


def _largest(claim: Claim) -> Steps:
    request = max((each for each in claim.requests() if not each.all), key=lambda each: each.count)
    return (*request.steps, "count")


@rule("claims")
def admin_access(review: Review) -> Iterator[Finding]:
    """Admin access in a namespace without the label."""
    label = _ADMIN_LABEL if review.minor >= 34 else _OLD_ADMIN_LABEL
    namespaces = {document.name: document for document in review.kind("Namespace")}
    for claim, request in review.iterate_requests():
        namespace = namespaces.get(claim.document.namespace)
        if request.value.get("adminAccess") is not True or namespace is None:
            continue
        labels = namespace.metadata.get("labels")
        labels = labels if isinstance(labels, dict) else {}
        if str(labels.get(label)).lower() == "true":
            continue
        old = f" ({_OLD_ADMIN_LABEL} was the name before 1.34)" if _OLD_ADMIN_LABEL in labels else ""
        yield claim.document.finding(
            "admin-access-namespace",
            (*request.steps, "adminAccess"),
            f'adminAccess is refused unless namespace {namespace.name} has the label {label}: "true"{old}',
            f'label the namespace {label}: "true"',
        )
