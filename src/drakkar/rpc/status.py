"""How a call ended: gRPC's status codes and the error that carries one."""

from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """gRPC's status codes (grpc/doc/statuscodes.md)."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16

    @property
    def words(self) -> str:
        """The name as Go prints it: `DeadlineExceeded`."""
        return "OK" if self is Code.OK else "".join(word.capitalize() for word in self.name.split("_"))


class RpcError(Exception):
    """A call that failed, with its code; the text is what the other side said, or why it could not be asked."""

    def __init__(self, code: Code, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details

    def __str__(self) -> str:
        return f"rpc error: code = {self.code.words} desc = {self.details}"
