"""`drakkar cdi watch`: keeps a specification true while the driver, MIG devices or nodes change."""

from __future__ import annotations

import contextlib
import select
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drakkar.cli.cdi.generating import generator_options, make, maker
from drakkar.errors import DrakkarError

if TYPE_CHECKING:
    from drakkar.injection.model import Spec


@click.command("watch")
@generator_options
@click.option(
    "--output", type=click.Path(path_type=Path), required=True, help="The file to keep, e.g. /var/run/cdi/nvidia.yaml."
)
@click.option(
    "--interval", type=click.FloatRange(min=0.1), default=1.0, show_default=True, help="Seconds between looks."
)
@click.option("--once", is_flag=True, help="End as soon as the file is right: wait for a late driver.")
def command(output: Path, interval: float, once: bool, **asked: Any) -> None:
    """Write the specification of this host, and write it again when something changes, saying what.

    While there is no driver, the file stays as it is and the reason is printed. Ends with SIGTERM or Ctrl-C.
    """
    keeper = Keeper(asked, output)
    try:
        with contextlib.suppress(KeyboardInterrupt), _ended_by_sigterm():
            while True:
                for line in keeper.look():
                    click.echo(f"{datetime.now(UTC):%H:%M:%S} {line}")
                if once and keeper.right:
                    return
                keeper.wait(interval)
    finally:
        keeper.close()


class Keeper:
    """One file and the host that it describes. `written` is what stands in it, None before the first time."""

    def __init__(self, asked: dict[str, Any], output: Path) -> None:
        self.written: Spec | None = _present(output)
        self._right = False
        self._asked = asked
        self._output = output
        self._said = ""
        self._look = _look(asked)
        self._watch: Any = None
        self._folders: list[str] = []

    def look(self) -> Iterator[str]:
        """Looks at the host; makes and writes the specification if it is another one. Yields what to say."""
        if not self._look.changed() and self._right and self._output.exists():
            return
        from drakkar.injection.changes import changes
        from drakkar.injection.write import write_spec

        try:
            made = make(self._asked)
        except DrakkarError as error:
            self._right = False
            said = self._look.reason() or error.message
            if said != self._said:
                self._said = said
                stays = " (the file stays as it is)" if self._output.exists() else ""
                yield f"waiting: {said}{stays}"
            return
        self._said, self._right = "", True
        missing = not self._output.exists()
        different = changes(None if missing else self.written, made.spec.raw)
        if different or missing:
            write_spec(self._output.parent, self._output.name, made.spec)
            yield f"{self._output} written: {'; '.join(different)}"
        self.written = made.spec.raw

    @property
    def right(self) -> bool:
        """Whether the file describes the host as it was at the last look."""
        return self._right

    def wait(self, seconds: float) -> None:
        """Waits until a folder of nodes or libraries changes, at most so many seconds."""
        from drakkar.injection.watch import watch_directories

        folders = self._look.folders()
        if folders != self._folders or self._watch is None:
            self._close_watch()
            self._watch, self._folders = watch_directories(folders), folders
        if self._watch is None:
            select.select([], [], [], seconds)
            return
        ready, _, _ = select.select([self._watch], [], [], seconds)
        if ready:
            select.select([], [], [], min(seconds, _SETTLE))  # a driver makes its nodes one after the other
            self._watch.changed()

    def close(self) -> None:
        """Gives everything back."""
        self._close_watch()
        self._look.close()

    def _close_watch(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None


_SETTLE = 0.2


def _look(asked: dict[str, Any]) -> Any:
    if maker(asked) == "amd":
        from drakkar.vendors.amd.surveillance import HostLook as AmdLook

        return AmdLook(asked["sys_root"] or asked["driver_root"], asked["dev_root"])
    from drakkar.vendors.nvidia.cdi.surveillance import HostLook

    return HostLook(asked["driver_root"], asked["dev_root"], asked["sys_root"])


def _present(output: Path) -> Spec | None:
    """What the file holds already; None if there is none, or nothing that can be read."""
    from drakkar.injection.errors import CdiError
    from drakkar.injection.spec import CdiSpec

    if not output.exists():
        return None
    try:
        return CdiSpec.load(output).raw
    except CdiError:
        return None


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    def end(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
