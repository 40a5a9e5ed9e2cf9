"""The help of `drakkar` itself comes without click; it must be what click would have to say."""

import subprocess
import sys

import click

from drakkar.cli import COMMANDS, listing
from drakkar.cli.root import root


def test_every_command_is_listed_and_can_be_loaded() -> None:
    text = listing()
    context = click.Context(root, **root.context_settings)
    for name, (_, about) in COMMANDS.items():
        assert f"  {name} " in text and about in text
        command = root.get_command(context, name)
        assert command is not None and command.name == name
    options = [*root.params, root.get_help_option(context)]
    assert {word for option in options if option for word in option.opts} == {"--version", "-h", "--help"}


def test_the_help_imports_nothing_heavy() -> None:
    code = "import sys; sys.argv[1:] = ['--help']; from drakkar.cli import main; main(); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Commands:" in done.stdout
    assert not {"'click'", "'msgspec'", "'asyncio'"} & set(done.stdout.split("[")[-1].rstrip("]\n").split(", "))
