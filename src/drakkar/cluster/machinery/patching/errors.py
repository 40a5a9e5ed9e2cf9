"""Why a patch cannot be applied, with the status that Kubernetes answers.

JSON patches that fail get a 422 without a word (upstream hides the library's text), format errors a 400, and everything
that a handler did not foresee a 500 without a reason.
"""

from __future__ import annotations

from typing import Any

__all__ = ["PatchError"]


class PatchError(ValueError):
    """A patch that cannot be read or applied."""

    def __init__(self, message: str, code: int = 500, reason: str = "", details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.details = details
        self.why = message
        """What the library says; clients that patch do not hear it, authors of webhooks do."""

    @classmethod
    def bad_request(cls, message: str) -> PatchError:
        """400: the patch cannot be understood."""
        return cls(message, 400, "BadRequest")

    @classmethod
    def rejected(cls, why: str = "") -> PatchError:
        """422: the patch does not apply to the object."""
        message = "the server rejected our request due to an error in our request"
        error = cls(message, 422, "Invalid", {})
        error.why = why or message
        return error

    @classmethod
    def invalid(cls, value: Any, detail: str) -> PatchError:
        """422 with a cause on the field `patch`: the patched object is not of its type."""
        from drakkar.api.fields import invalid, invalid_status

        status = invalid_status("", "", "", [invalid("patch", value, detail)])
        return cls(status["message"], 422, "Invalid", status["details"])

    def status(self, *_: object) -> dict[str, Any]:
        """The Status object that answers the request; where the request went does not show in it."""
        found: dict[str, Any] = {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message,
        }  # fmt: skip
        if self.reason:
            found["reason"] = self.reason
        if self.details is not None:
            found["details"] = self.details
        found["code"] = self.code
        return found
