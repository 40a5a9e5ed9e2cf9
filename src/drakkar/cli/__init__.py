"""The command line: one file per command, loaded when that command runs.

`drakkar --help` must answer in a tenth of a second, so this module imports nothing but click and takes the commands
from a table; what a command needs is imported by its own file. Every `DrakkarError` becomes one sentence.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

import drakkar

COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("up", "Start an embedded cluster with simulated GPU machines."),
    "down": ("down", "End a running embedded cluster."),
    "status": ("status", "Show the embedded clusters that run, their nodes and devices."),
    "explain": ("explain", "Say how a pod or claim got its devices, or why it did not."),
    "free": ("free", "Say how many devices are free, and what still fits."),
    "who": ("who", "Say which pod, claim and container has a device, since when."),
    "metrics": ("metrics", "Print or serve the cluster's devices as Prometheus metrics."),
    "board": ("board", "Serve a page that shows nodes, devices, claims and waiting pods."),
    "fault": ("fault", "Break a simulated node on purpose."),
    "driver": ("driver", "Run a device driver as a process of its own, against any cluster."),
    "models": ("models", "List the machines that can be simulated."),
    "lint": ("lint", "Review manifests, chart values and alert rules before they are applied."),
    "cdi": ("cdi", "List, check and apply Container Device Interface files."),
    "version": ("version", "Print the version."),
}


class _Commands(click.Group):
    """A group that knows its commands by name and loads them one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = COMMANDS.get(cmd_name)
        if found is None:
            return None
        module, short_help = found
        if ctx.resilient_parsing or _only_listing(ctx):
            return click.Command(cmd_name, short_help=short_help)
        command: click.Command = import_module(f"drakkar.cli.{module}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            hint = f" Did you mean {near[0]!r}?" if near else " See `drakkar --help`."
            ctx.fail(f"no such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


def _only_listing(ctx: click.Context) -> bool:
    return bool(ctx.meta.get("drakkar.listing"))


class _Root(_Commands):
    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        ctx.meta["drakkar.listing"] = True
        super().format_help(ctx, formatter)


@click.group(cls=_Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(drakkar.__version__, "--version", prog_name="drakkar")
def root() -> None:
    """The whole GPU device contract on Kubernetes: inventory, allocation, preparation, injection."""


def main() -> None:
    """The console script."""
    from drakkar.errors import DrakkarError

    try:
        code = root(standalone_mode=False)  # click hands the status of `Exit` back instead of raising it
        sys.exit(code if isinstance(code, int) else 0)
    except DrakkarError as error:
        _show(error)
        sys.exit(1)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except Exception as error:
        _show_defect(error)
        sys.exit(70)


def _show_defect(error: Exception) -> None:
    """Something we did not think of: say so in one sentence, keep the traceback for those who want it."""
    import logging
    import os

    if logging.getLogger().handlers:  # otherwise logging would print it
        logging.getLogger("drakkar").critical("a defect", exc_info=error)
    print(f"drakkar: internal error: {type(error).__name__}: {error}", file=sys.stderr)
    if os.environ.get("DRAKKAR_DEBUG"):
        import traceback

        traceback.print_exception(error)
    else:
        print("  next: please report it, with what DRAKKAR_DEBUG=1 prints", file=sys.stderr)


def _show(error: Any) -> None:
    if "--output=json" in sys.argv or ("json" in sys.argv and {"-o", "--output"} & set(sys.argv)):
        import json

        print(json.dumps({"error": error.to_dict()}), file=sys.stderr)
        return
    print(f"drakkar: {error.message}", file=sys.stderr)
    if error.subject and error.subject not in error.message:
        print(f"  about: {error.subject}", file=sys.stderr)
    if error.expected:
        print(f"  expected: {error.expected}", file=sys.stderr)
    if error.next_step:
        print(f"  next: {error.next_step}", file=sys.stderr)
