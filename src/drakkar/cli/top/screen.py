"""The screen: three tables over one snapshot that is read again and again.

Rows keep their place and the cursor its row while numbers change; a reading that fails leaves the last one on the
screen and says so in the title. Colours say less than words here, so that NO_COLOR takes nothing away.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, Final

from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Header, Input, Static, TabbedContent, TabPane

from drakkar.cli.top.rows import DeviceRow, NodeRow, TopView, WaitingRow, view
from drakkar.errors import DrakkarError
from drakkar.evidence.snapshot import Snapshot
from drakkar.kube.apierrors import ApiError

__all__ = ["Top"]

_STATES: Final = ("", "free", "held", "tainted", "stranded", "lost")
_COLUMNS: Final = {
    "nodes": ("NODE", "DEVICES", "TOTAL", "HELD", "TAINTED", "STRANDED", "FREE"),
    "devices": ("DEVICE", "NODE", "TYPE", "STATE", "CLAIM", "POD"),
    "waiting": ("POD", "CAUSE", "WHY"),
}
_TITLES: Final = {"nodes": "Nodes", "devices": "Devices", "waiting": "Waiting"}


class Details(ModalScreen[None]):
    """Everything about one row."""

    BINDINGS: ClassVar = [Binding("escape,enter,q", "dismiss", "Close")]
    CSS = (
        "Details { align: center middle; } #details"
        " { width: 80%; height: auto; max-height: 80%; border: round; padding: 1; }"
    )

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """One box."""
        with VerticalScroll(id="details"):
            yield Static(self._text, markup=False)


class Top(App[None]):
    """The application; `read` gives a snapshot, `interval` is in seconds."""

    BINDINGS: ClassVar = [
        Binding("1", "tab('nodes')", "Nodes"),
        Binding("2", "tab('devices')", "Devices"),
        Binding("3", "tab('waiting')", "Waiting"),
        Binding("slash", "filter", "Filter"),
        Binding("escape", "clear", "Clear", show=False),
        Binding("f", "state", "State"),
        Binding("s", "sort", "Sort"),
        Binding("r", "refresh", "Read"),
        Binding("p", "pause", "Pause"),
        Binding("q", "quit", "Quit"),
    ]
    CSS = "#filter { display: none; dock: bottom; } #filter.shown { display: block; }"

    def __init__(self, read: Callable[[], Awaitable[Snapshot]], *, title: str = "", interval: float = 2.0) -> None:
        super().__init__()
        self._read, self._interval = read, interval
        self._name = title
        self._view = TopView((), (), (), "", ())
        self._problem = ""
        self._words, self._state, self._paused = "", "", False
        self._sorted: dict[str, int] = {"nodes": 0, "devices": 1, "waiting": 0}
        self._rows: dict[str, dict[str, Any]] = {}

    def compose(self) -> ComposeResult:
        """Three tabs with a table each, and a line to filter by."""
        yield Header()
        with TabbedContent(initial="nodes"):
            for name, title in _TITLES.items():
                with TabPane(title, id=name):
                    table: DataTable[str] = DataTable(id=f"table-{name}", cursor_type="row", zebra_stripes=True)
                    yield table
        yield Input(placeholder="words that a row has to have", id="filter")
        yield Footer()

    async def on_mount(self) -> None:
        """The columns, the first reading, and the timer for the next ones."""
        for name, columns in _COLUMNS.items():
            self._table(name).add_columns(*columns)
        await self.action_refresh()
        self._table("nodes").focus()
        self.set_interval(self._interval, self._tick)

    # Reading

    async def _tick(self) -> None:
        if not self._paused:
            await self.action_refresh()

    async def action_refresh(self) -> None:
        """Read now."""
        try:
            self._view = view(await self._read())
            self._problem = ""
        except (DrakkarError, ApiError, OSError) as error:
            self._problem = str(error)
        self._show()

    def _show(self) -> None:
        self._fill("nodes", self._view.nodes)
        self._fill("devices", [row for row in self._view.devices if self._state in ("", row.state)])
        self._fill("waiting", self._view.pending)
        free = sum(row.free for row in self._view.nodes)
        total = sum(row.total for row in self._view.nodes)
        self.title = f"drakkar top · {self._name}"
        words = [f"{free} of {total} free", f"{len(self._view.pending)} waiting"]
        words += [f"only {self._state}"] if self._state else []
        words += [f"/{self._words}"] if self._words else []
        words += ["paused"] if self._paused else []
        words += [f"{len(self._view.unread)} kinds could not be read"] if self._view.unread else []
        words += [f"not read: {self._problem}"] if self._problem else []
        self.sub_title = " · ".join(words)

    def _fill(self, name: str, rows: Sequence[NodeRow | DeviceRow | WaitingRow]) -> None:
        table = self._table(name)
        at = self._key_at(table)
        wanted = [row for row in rows if self._words.lower() in " ".join(map(str, row)).lower()]
        column = self._sorted[name]
        wanted.sort(key=lambda row: _order(row.cells()[column]))
        table.clear()
        self._rows[name] = {}
        for row in wanted:
            key = "/".join(map(str, row[:2]))
            if key not in self._rows[name]:
                self._rows[name][key] = row
                table.add_row(*row.cells(), key=key)
        if at in self._rows[name]:
            table.move_cursor(row=table.get_row_index(at))

    @staticmethod
    def _key_at(table: DataTable[str]) -> str:
        if not table.row_count or not table.is_valid_coordinate(table.cursor_coordinate):
            return ""
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value)

    def _table(self, name: str) -> DataTable[str]:
        return self.query_one(f"#table-{name}", DataTable)

    @property
    def _active(self) -> str:
        return self.query_one(TabbedContent).active or "nodes"

    # Keys

    def action_tab(self, name: str) -> None:
        """Show a table."""
        self.query_one(TabbedContent).active = name
        self._table(name).focus()

    def action_filter(self) -> None:
        """Ask for words."""
        line = self.query_one("#filter", Input)
        line.add_class("shown")
        line.focus()

    def action_clear(self) -> None:
        """Show all rows again."""
        line = self.query_one("#filter", Input)
        line.value = ""
        line.remove_class("shown")
        self._words, self._state = "", ""
        self._show()
        self._table(self._active).focus()

    def action_state(self) -> None:
        """Only devices of the next state."""
        self._state = _STATES[(_STATES.index(self._state) + 1) % len(_STATES)]
        self.action_tab("devices")
        self._show()

    def action_sort(self) -> None:
        """By the next column."""
        name = self._active
        self._sorted[name] = (self._sorted[name] + 1) % len(_COLUMNS[name])
        self._show()

    def action_pause(self) -> None:
        """Stop or go on reading."""
        self._paused = not self._paused
        self._show()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while somebody types."""
        self._words = event.value
        self._show()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Back to the table."""
        event.input.remove_class("shown")
        self._table(self._active).focus()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Everything about a row; for a node its devices."""
        name = str(event.data_table.id).removeprefix("table-")
        row = self._rows.get(name, {}).get(str(event.row_key.value))
        if isinstance(row, NodeRow):
            mine = [device for device in self._view.devices if device.node == row.node]
            head = [f"node {row.node}", *([row.problem] if row.problem else [])]
            self.push_screen(Details("\n".join([*head, *(f"{d.device}  {d.kind}  {d.state}  {d.pods}" for d in mine)])))
        elif isinstance(row, DeviceRow | WaitingRow):
            self.push_screen(Details(row.details()))


def _order(cell: str) -> tuple[int, float, str]:
    """Numbers by their value, then words."""
    return (0, float(cell), "") if cell.isdigit() else (1, 0.0, cell)
