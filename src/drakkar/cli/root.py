"""The root of the commands: a click group that knows its commands by name and loads them one at a time."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

import drakkar
from drakkar.cli import ABOUT, COMMANDS, listing


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = COMMANDS.get(cmd_name)
        if found is None:
            return None
        module, _ = found
        command: click.Command = import_module(f"drakkar.cli.{module}").command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands by their names, none of them loaded."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [
            CompletionItem(name, help=about) for name, (_, about) in COMMANDS.items() if name.startswith(incomplete)
        ]

    def get_help(self, ctx: click.Context) -> str:
        return listing()

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            hint = f" Did you mean {near[0]!r}?" if near else " See `drakkar --help`."
            ctx.fail(f"no such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Commands, help=ABOUT, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(drakkar.__version__, "--version", prog_name="drakkar")
def root() -> None:
    pass
