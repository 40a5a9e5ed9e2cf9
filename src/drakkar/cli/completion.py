"""Completion of commands and options: scripts for shells, and answers for kubectl, where Drakkar is a plugin.

kubectl asks a program named ``kubectl_complete-drakkar`` with the words typed so far, the last of which is to be
completed; it answers one candidate per line and ends with a directive (``:4``: no file names), as cobra defines them.
"""

from __future__ import annotations

import sys

import click
from click.shell_completion import ShellComplete, get_completion_class

_VARIABLE = "_DRAKKAR_COMPLETE"
_NO_FILES, _FILES = ":4", ":0"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print a script that completes commands and options in a shell.

    \b
    source <(drakkar completion bash)
    drakkar completion fish > ~/.config/fish/completions/drakkar.fish

    `kubectl drakkar` is completed by kubectl's own script, through kubectl_complete-drakkar.
    """
    from drakkar.cli.root import root

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(root, {}, "drakkar", _VARIABLE).source())


def kubectl_complete() -> None:
    """The console script ``kubectl_complete-drakkar``."""
    print("\n".join(candidates(sys.argv[1:])))


def candidates(words: list[str]) -> list[str]:
    """What may follow the words, the last of which is to be completed, and the directive."""
    from drakkar.cli.root import root

    *before, last = words or [""]
    try:
        found = ShellComplete(root, {}, "drakkar", _VARIABLE).get_completions(before, last)
    except Exception:  # whatever is wrong with half a command line, a shell must not be told
        return [_FILES]
    files = any(item.type in ("file", "dir") for item in found)
    lines = [f"{item.value}\t{item.help}" if item.help else str(item.value) for item in found if item.type == "plain"]
    return [*lines, _FILES if files or not lines else _NO_FILES]
