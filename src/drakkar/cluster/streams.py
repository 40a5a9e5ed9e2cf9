"""How the API server reaches a node for `logs`, `exec` and `attach`: a protocol, so neither side imports the other.

In Kubernetes the API server dials the kubelet's own HTTPS port. Both live in one process here, so the border is a
typed protocol instead of a second web server; what crosses it is the same (a byte stream for logs, numbered channels
for exec, as in the `v5.channel.k8s.io` subprotocol of KEP-4006). The kubelet implements `NodeStreams`, the API server
keeps one per connected node and knows nothing else of the kubelet.
"""

from __future__ import annotations

from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Sequence
from typing import Final, Protocol

STDIN: Final = 0
STDOUT: Final = 1
STDERR: Final = 2
ERROR: Final = 3
RESIZE: Final = 4
"""Channel numbers of the remotecommand websocket protocol (v4 and v5); `output()` yields only STDOUT and STDERR."""


class ExecSession(Protocol):
    """One running `exec` or `attach`. Leaving it early is allowed: `close()` ends the process and frees its pipes."""

    async def write_stdin(self, data: bytes) -> None:
        """Pass bytes to the process; ignored without a word once it has ended or if stdin was not asked for."""

    async def close_stdin(self) -> None:
        """End of input; the process reads end of file."""

    async def resize(self, width: int, height: int) -> None:
        """New terminal size in character cells; ignored without a terminal."""

    def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """(channel, bytes) until every stream has ended; with a terminal all output is on channel STDOUT."""

    async def wait(self) -> int:
        """The exit code (128 + signal number if a signal ended it), once the process has ended; 0 for `attach`."""

    async def close(self) -> None:
        """Kill the process if it still runs and release everything; calling it twice is fine."""


class NodeStreams(Protocol):
    """What a node offers the API server. Failures are `DrakkarError`s whose `reason` is a Status reason
    (`BadRequest`, `NotFound`) and whose message is the kubelet's own text, ready for the Status object."""

    def logs(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        follow: bool = False,
        tail_lines: int | None = None,
        previous: bool = False,
        timestamps: bool = False,
        since_seconds: float | None = None,
        limit_bytes: int | None = None,
    ) -> AsyncIterator[bytes]:
        """The container's log in chunks of whole lines, stdout and stderr interleaved as written; `container` "" means
        the only container. The first `__anext__` raises if there is no such container or it has not started (so a
        server should take one chunk before it sends its status line); with `follow` the stream ends with the
        container."""

    async def exec(
        self,
        namespace: str,
        pod: str,
        container: str,
        command: Sequence[str],
        *,
        stdin: bool = False,
        stdout: bool = True,
        stderr: bool = True,
        tty: bool = False,
    ) -> ExecSession:
        """Start `command` in a running container."""

    async def attach(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        stdin: bool = False,
        stdout: bool = True,
        stderr: bool = True,
        tty: bool = False,
    ) -> ExecSession:
        """Join the main process of a running container; closing the session leaves the container running."""

    async def connect(self, namespace: str, pod: str, port: int) -> tuple[StreamReader, StreamWriter]:
        """A connection to a port of a running pod (`port-forward`)."""
