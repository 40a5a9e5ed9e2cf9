"""`drakkar doctor --watch`: looks again and again, and tells only what changed since the look before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from drakkar.cli.snapshots import Reader
    from drakkar.diagnosis.verdict import Finding
    from drakkar.evidence.snapshot import Snapshot
    from drakkar.kube.clock import Clock

State = dict[str, tuple[str, str]]


def watch(
    bundle: Path | None, target: str, kubeconfig: Path | None, context: str, namespace: str, every: float
) -> None:
    """Tell changes until somebody interrupts. Raises `DrakkarError` if the first look fails."""
    import asyncio

    from drakkar.cli.snapshots import reader
    from drakkar.kube.clock import SystemClock

    async def run() -> None:
        async with reader(bundle, kubeconfig, context, namespace, logs=True) as reading:
            await follow(reading, target, namespace, every, SystemClock(), click.echo)

    asyncio.run(run())


async def follow(
    reading: Reader, target: str, namespace: str, every: float, clock: Clock, say: Callable[[str], object]
) -> None:
    """The loop of `watch`; ends when `clock.sleep` raises. A look that fails is told and tried again."""
    from drakkar.errors import DrakkarError

    before: State | None = None
    trouble = ""
    while True:
        try:
            snapshot = await reading.read()
        except DrakkarError as error:
            if before is None:
                raise
            if error.message != trouble:
                say(f"{clock.now():%H:%M:%S} ?   cannot look: {error.message}")
            trouble = error.message
        else:
            trouble = ""
            now = _state(snapshot, target, namespace or ("" if not target else reading.namespace))
            for line in changes(before, now):
                say(f"{clock.now():%H:%M:%S} {line}")
            before = now
        await clock.sleep(every)


def changes(before: State | None, now: State) -> Iterator[str]:
    """What is new, what is different and what is over; at the first look everything that is wrong."""
    if before is None and not now:
        yield "ok  nothing is wrong"
    for subject, (cause, sentence) in now.items():
        known = (before or {}).get(subject)
        if known is None or known[0] != cause:
            yield f"NO  {subject}: {cause}: {sentence}"
    for subject, (cause, _) in (before or {}).items():
        if subject not in now:
            yield f"ok  {subject}: {cause} is over"


def _state(snapshot: Snapshot, target: str, namespace: str) -> State:
    if target:
        from drakkar.diagnosis.explain import explain

        verdict = explain(snapshot, target, namespace=namespace or "default")
        return {} if verdict.healthy else {verdict.target: _told(verdict.finding)}
    from drakkar.diagnosis.survey import survey

    return {entry.subject: _told(entry.finding) for entry in survey(snapshot, namespace=namespace).wrong}


def _told(finding: Finding) -> tuple[str, str]:
    return finding.cause, finding.sentence
