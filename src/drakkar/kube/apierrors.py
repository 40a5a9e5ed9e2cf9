"""API failures: a Kubernetes `Status` as an exception, so that callers branch on reasons rather than on texts."""

from __future__ import annotations

from typing import Any

from drakkar.errors import DrakkarError


class ApiError(DrakkarError):
    """The API server refused: `status` is the HTTP code, `reason` the Status' reason, `details` its details."""

    def __init__(self, status: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message, reason=reason or "Unknown")
        self.status = status
        self.details = details or {}

    @property
    def not_found(self) -> bool:
        return self.reason == "NotFound"

    @property
    def already_exists(self) -> bool:
        return self.reason == "AlreadyExists"

    @property
    def conflict(self) -> bool:
        return self.reason == "Conflict"

    @property
    def gone(self) -> bool:
        return self.status == 410 or self.reason in ("Expired", "Gone")

    @property
    def invalid(self) -> bool:
        return self.reason == "Invalid"


class UnreachableError(DrakkarError):
    """No answer came: connection refused, TLS failure, time-out."""


def error_from(status: int, body: Any) -> ApiError:
    """The exception for an answer with a failing HTTP `status`; `body` is its parsed Status, or anything else."""
    if isinstance(body, dict) and body.get("kind") == "Status":
        return ApiError(
            int(body.get("code") or status), body.get("reason", ""), body.get("message", ""), body.get("details")
        )
    text = body.decode(errors="replace") if isinstance(body, bytes) else str(body or "")
    return ApiError(status, "", f"the server answered {status}: {text.strip()[:500]}")
