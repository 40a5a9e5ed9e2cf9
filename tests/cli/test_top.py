"""`drakkar top`: the rows, the table, and the screen driven by textual's pilot over a recorded cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from drakkar.cli.top import command
from drakkar.cli.top.rows import view
from drakkar.errors import DrakkarError
from drakkar.evidence.bundle import load
from drakkar.evidence.snapshot import Snapshot

BUNDLE = Path(__file__).parents[2] / "cases" / "diagnosis" / "x-capacity-exhausted"


def test_rows_of_a_snapshot() -> None:
    shown = view(load(BUNDLE))
    assert {row.node for row in shown.nodes} == {"share-l40s-1", "share-l40s-2"}
    assert all(row.state == "held" and "copilots/copilot-" in row.pods for row in shown.devices)
    [waiting] = shown.pending
    assert (waiting.pod, waiting.cause) == ("copilots/copilot-f-0", "capacity-exhausted")


def test_once_prints_a_table_and_json() -> None:
    text = CliRunner().invoke(command, ["--once", "--bundle", str(BUNDLE)]).output
    assert text.splitlines()[0].split() == ["NODE", "DEVICES", "TOTAL", "HELD", "TAINTED", "STRANDED", "FREE"]
    assert "waiting: copilots/copilot-f-0: " in text
    found = json.loads(CliRunner().invoke(command, ["-o", "json", "--bundle", str(BUNDLE)]).output)
    assert len(found["devices"]) == 3


def test_without_textual_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drakkar.cli.top.find_spec", lambda name: None)
    result = CliRunner().invoke(command, ["--bundle", str(BUNDLE)])
    assert isinstance(result.exception, DrakkarError)
    assert result.exception.next_step.startswith("pip install drakkar[top]")


def drive(steps: Callable[[Any, Any], Awaitable[None]], read: Callable[[], Awaitable[Snapshot]] | None = None) -> None:
    from drakkar.cli.top.screen import Top

    async def still() -> Snapshot:
        return load(BUNDLE)

    async def run() -> None:
        app = Top(read or still, title="bundle", interval=3600)
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.pause()
            await steps(app, pilot)

    asyncio.run(run())


def rows(app: Any, name: str) -> list[list[str]]:
    table = app.query_one(f"#table-{name}")
    return [table.get_row_at(number) for number in range(table.row_count)]


def test_three_tables() -> None:
    async def steps(app: Any, pilot: Any) -> None:
        assert [row[0] for row in rows(app, "nodes")] == ["share-l40s-1", "share-l40s-2"]
        assert len(rows(app, "devices")) == 3
        assert rows(app, "waiting")[0][:2] == ["copilots/copilot-f-0", "capacity-exhausted"]
        assert app.sub_title.startswith("0 of 3 free · 1 waiting")

    drive(steps)


def test_filter_states_and_details() -> None:
    async def steps(app: Any, pilot: Any) -> None:
        await pilot.press("2", "slash", *"l40s-2", "enter")
        assert [row[1] for row in rows(app, "devices")] == ["share-l40s-2"]
        await pilot.press("enter")
        await pilot.pause()
        assert "copilots/copilot-e-0" in str(app.screen.query_one("Static").render())
        await pilot.press("escape")
        await pilot.press("escape")
        assert len(rows(app, "devices")) == 3
        await pilot.press("f")
        assert (rows(app, "devices"), "only free" in app.sub_title) == ([], True)
        await pilot.press("f")
        assert len(rows(app, "devices")) == 3

    drive(steps)


def test_a_reading_that_fails_leaves_the_last_one_and_says_so() -> None:
    readings = [load(BUNDLE)]

    async def read() -> Snapshot:
        if readings:
            return readings.pop()
        raise DrakkarError("the server does not answer")

    async def steps(app: Any, pilot: Any) -> None:
        await pilot.press("r")
        await pilot.pause()
        assert "the server does not answer" in app.sub_title
        assert len(rows(app, "devices")) == 3

    drive(steps, read)


def test_pausing_and_sorting() -> None:
    async def steps(app: Any, pilot: Any) -> None:
        await pilot.press("p")
        assert "paused" in app.sub_title
        await pilot.press("1", "s", "s")
        assert [row[2] for row in rows(app, "nodes")] == ["1", "2"]

    drive(steps)
