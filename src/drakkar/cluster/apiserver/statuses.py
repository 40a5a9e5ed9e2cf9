"""Failures as Kubernetes answers them: `Status` objects, with the very texts of `k8s.io/apimachinery/pkg/api/errors`.

Inside the server a refusal is a `StatusError`; whoever serves the request turns it into an answer. Clients branch on
reason and details, people read the message, and recorded conversations compare all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drakkar.errors import DrakkarError

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class StatusError(DrakkarError):
    """The request is refused with this Status."""

    def __init__(self, status: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        super().__init__(status.get("message", ""), reason=status.get("reason", "") or "Unknown")
        self.status = status
        self.headers = headers or {}

    @property
    def code(self) -> int:
        return int(self.status["code"])


def status(
    code: int, message: str, reason: str | None = None, details: dict[str, Any] | None = None, *, bare: bool = False
) -> dict[str, Any]:
    """A failing Status; `bare` leaves out the reason, `details` None leaves out the details."""
    answer: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
    }
    if not bare:
        answer["reason"] = reason or _REASONS.get(code, "")
    if details is not None:
        answer["details"] = details
    answer["code"] = code
    return answer


def success(details: dict[str, Any]) -> dict[str, Any]:
    """What a delete answers when the object is not shown."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def qualified(group: str, plural: str) -> str:
    """``resourceclaims.resource.k8s.io``, or ``pods`` in the core group."""
    return f"{plural}.{group}" if group else plural


def _details(group: str, plural: str, name: str = "") -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if plural:
        details["kind"] = plural
    return details


def bad_request(message: str) -> StatusError:
    return StatusError(status(400, message))


def unauthorized() -> StatusError:
    return StatusError(status(401, "Unauthorized"))


def unknown_path() -> StatusError:
    """No resource is served there."""
    return StatusError(status(404, "the server could not find the requested resource", details={}))


def method_not_allowed() -> StatusError:
    return StatusError(status(405, "the server does not allow this method on the requested resource", details={}))


def not_found(group: str, plural: str, name: str) -> StatusError:
    return StatusError(
        status(404, f'{qualified(group, plural)} "{name}" not found', details=_details(group, plural, name))
    )


def already_exists(group: str, plural: str, name: str) -> StatusError:
    return StatusError(
        status(
            409,
            f'{qualified(group, plural)} "{name}" already exists',
            "AlreadyExists",
            _details(group, plural, name),
        )
    )


def conflict(group: str, plural: str, name: str, why: str) -> StatusError:
    return StatusError(
        status(
            409,
            f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}',
            details=_details(group, plural, name),
        )
    )


def modified(group: str, plural: str, name: str) -> StatusError:
    """The optimistic lock of updates."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(group, plural, name, why)


def forbidden(group: str, plural: str, name: str, why: str) -> StatusError:
    """Refused by authorisation or admission; `name` may be empty."""
    subject = f'{qualified(group, plural)} "{name}"' if name else qualified(group, plural)
    return StatusError(status(403, f"{subject} is forbidden: {why}", details=_details(group, plural, name)))


def forbidden_path(user: str, verb: str, path: str, why: str = "") -> StatusError:
    message = f'forbidden: User "{user}" cannot {verb} path "{path}"'
    return StatusError(status(403, f"{message}: {why}" if why else message, details={}))


def expired(message: str, details: dict[str, Any] | None = None) -> StatusError:
    answer = status(410, message, "Expired", details)
    return StatusError(answer)


def invalid_options(kind: str, problems: Sequence[tuple[str, str, str]]) -> StatusError:
    """Options of a request that contradict each other; problems are (field, reason, message)."""
    causes = [{"reason": reason, "message": message, "field": field} for field, reason, message in problems]
    texts = [f"{field}: {message}" for field, _, message in problems]
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return StatusError(
        status(
            422,
            f'{kind}.meta.k8s.io "" is invalid: {listed}',
            details={"group": "meta.k8s.io", "kind": kind, "causes": causes},
        )
    )


def not_acceptable(media_types: Sequence[str]) -> StatusError:
    message = f"406: Not Acceptable\n\nAvailable representations: {', '.join(media_types)}"
    return StatusError(status(406, message, details={}))


def not_convertible(media_types: Sequence[str]) -> StatusError:
    return StatusError(status(406, f"only the following media types are accepted: {', '.join(media_types)}"))


def unsupported_body(media_types: Sequence[str]) -> StatusError:
    message = "the body of the request was in an unknown format - accepted media types include: "
    return StatusError(status(415, message + ", ".join(media_types)))


def unsupported_patch() -> StatusError:
    return StatusError(status(415, "415: Unsupported Media Type", details={}))


def too_large(limit: int) -> StatusError:
    return StatusError(status(413, f"Request entity too large: limit is {limit}"))


def too_many_requests(message: str, seconds: int, causes: list[dict[str, Any]] | None = None) -> StatusError:
    details: dict[str, Any] = {}
    if causes:
        details["causes"] = causes
    if seconds:
        details["retryAfterSeconds"] = seconds
    return StatusError(status(429, message, details=details), {"Retry-After": str(seconds)} if seconds else {})


def internal(message: str, *, bare: bool = False) -> StatusError:
    return StatusError(status(500, message, bare=bare))


def internal_error(message: str) -> StatusError:
    """The server's own fault, as `NewInternalError` words it."""
    return StatusError(status(500, f"Internal error occurred: {message}", details={"causes": [{"message": message}]}))


def unwritable(message: str, *, full: bool) -> StatusError:
    """The write cannot be made durable; 507 (RFC 4918) where space would help."""
    return StatusError(status(507, message, "InsufficientStorage")) if full else internal_error(message)


def not_implemented(message: str) -> StatusError:
    return StatusError(status(501, message, "NotImplemented"))


def unavailable(message: str) -> StatusError:
    return StatusError(status(503, message))
