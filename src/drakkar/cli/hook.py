"""`drakkar hook`: the hooks that specifications name, for a look by hand; `drakkar.hooks` has them.

The program's entry runs them before click is loaded, since a container waits for them; this is what the table of
commands needs to know of them.
"""

from __future__ import annotations

import click


@click.command("hook", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """What a runtime runs beside a container before it starts."""
    from drakkar.hooks.commands import main

    raise click.exceptions.Exit(main(arguments))
