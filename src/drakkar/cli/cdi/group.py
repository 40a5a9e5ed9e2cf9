"""The group `drakkar cdi`: knows its commands from the table in `drakkar.cli.cdi` and loads them one at a time."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from drakkar.cli.cdi import COMMANDS


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = COMMANDS.get(cmd_name)
        if found is None:
            return None
        (module, attribute), about = found[0].split(":"), found[1]
        if ctx.resilient_parsing or ctx.invoked_subcommand is None:  # completion and the list need no more
            return click.Command(cmd_name, short_help=about)
        loaded: click.Command = getattr(import_module(f"drakkar.cli.cdi.{module}"), attribute)
        return loaded

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        ctx.invoked_subcommand = args[0] if args else None
        return super().resolve_command(ctx, args)


@click.group("cdi", cls=_Commands)
def command() -> None:
    """List, make, check and apply Container Device Interface files."""
