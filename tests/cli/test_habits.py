"""Habits that all commands share: kubectl's options, forms of output, columns, colours, completion, the plugin."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import click
import pytest

from drakkar.cli import COMMANDS, printing
from drakkar.cli.completion import candidates
from drakkar.cli.root import root

CASES = Path(__file__).parents[2] / "cases" / "diagnosis"
BUNDLE = str(CASES / "x-devices-tainted")
# A form of their own: a page that is served, metrics, a process that runs on, or a report with its own forms.
SERVING = {"metrics", "board", "driver", "device-plugin", "mig", "lint", "migrate", "preflight", "plan", "top"}
FILE = {"capture"}


def command(name: str) -> click.Command:
    found = root.get_command(click.Context(root), name)
    assert found is not None
    return found


def options(of: click.Command) -> dict[str, click.Option]:
    return {word: option for option in of.params if isinstance(option, click.Option) for word in option.opts}


ASKING = sorted(
    name for name in COMMANDS if name not in SERVING | {"hook", "cdi"} and "--kubeconfig" in options(command(name))
)


@pytest.mark.parametrize("name", ASKING)
def test_a_command_that_asks_a_cluster_has_kubectl_s_options(name: str) -> None:
    has = options(command(name))
    assert {"-n", "--namespace", "-A", "--all-namespaces", "--context", "--kubeconfig"} <= set(has)
    assert {"-o", "--output"} <= set(has)
    if name not in FILE:
        kind = has["-o"].type
        assert isinstance(kind, click.Choice)
        assert {"json", "yaml", "wide"} <= set(kind.choices)


def test_the_commands_that_answer_questions_are_among_them() -> None:
    assert {"doctor", "explain", "free", "who", "verify", "audit", "capture"} <= set(ASKING)


QUESTIONS = [
    ("doctor", BUNDLE),
    ("doctor", BUNDLE, "node/h200-03"),
    ("explain", "pod/sim/cfd-wing-92-vvw2r", "--bundle", BUNDLE),
    ("free", "--bundle", BUNDLE),
    ("who", "node/h200-03", "--bundle", BUNDLE),
    ("audit", "--bundle", BUNDLE),
    ("doctor", "--explain-cause", "devices-tainted"),
]


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    code = "from drakkar.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.parametrize("words", QUESTIONS, ids=lambda words: " ".join(words)[:30])
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_an_answer_is_data_where_data_is_asked_for(words: tuple[str, ...], form: str) -> None:
    import yaml

    done = run(*words, "-o", form)
    assert done.returncode in (0, 1), done.stderr
    answer = json.loads(done.stdout) if form == "json" else yaml.safe_load(done.stdout)
    assert isinstance(answer, dict) and answer


def on_terminal(*words: str, **environment: str) -> str:
    """What a command prints on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    code = "from drakkar.cli import main; main()"
    child = subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=theirs, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "80", "TERM": "xterm", **environment},
    )  # fmt: skip
    os.close(theirs)
    data = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        data += chunk
    os.close(ours)
    assert child.wait(timeout=60) in (0, 1)
    return data.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("words", QUESTIONS, ids=lambda words: " ".join(words)[:30])
def test_a_terminal_of_80_columns_is_enough_and_has_colours_unless_forbidden(words: tuple[str, ...]) -> None:
    plain = on_terminal(*words, NO_COLOR="1")
    assert "\x1b" not in plain
    too_long = [line for line in plain.splitlines() if len(line) > 80 and " " in line.strip()[:80]]
    assert not [line for line in too_long if not line.startswith(("cases/", "/"))], too_long


def test_marks_are_coloured_on_a_terminal_and_nowhere_else() -> None:
    assert "\x1b[31mNO\x1b[0m" in on_terminal("doctor", BUNDLE, NO_COLOR="")
    assert "\x1b" not in run("doctor", BUNDLE).stdout


def test_columns_go_on_below_themselves_where_the_terminal_is_narrow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(printing, "terminal_width", lambda: 30)
    printing.table(["NAME", "REASON"], [["a", "several words that are too long"], ["b", "short"]])
    shown = capsys.readouterr().out
    assert all(len(line) <= 30 for line in shown.splitlines())
    assert shown.splitlines()[0].split() == ["NAME", "REASON"]
    assert " ".join(shown.split()) == "NAME REASON a several words that are too long b short"
    wide = printing.WIDE.set(True)
    printing.table(["NAME", "REASON"], [["a", "several words that are too long"]])
    printing.WIDE.reset(wide)
    assert "several words that are too long" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "among"),
    [
        ([""], "doctor\t"),
        (["do"], "doctor\t"),
        (["doctor", "--exp"], "--explain-cause"),
        (["free", "--by", ""], "node"),
        (["doctor", "-o", "s"], "sarif"),
    ],
)
def test_kubectl_is_told_what_may_follow(words: list[str], among: str) -> None:
    found = candidates(words)
    assert any(line.startswith(among) for line in found), found
    assert found[-1] in (":0", ":4")


def test_half_a_command_line_is_no_error() -> None:
    assert candidates(["nonsense", "x"])[-1] in (":0", ":4")
    assert candidates([])[-1] == ":4"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_get_their_script(shell: str) -> None:
    done = run("completion", shell)
    assert done.returncode == 0 and "_DRAKKAR_COMPLETE" in done.stdout


def test_a_shell_completes_through_the_environment() -> None:
    done = run(_DRAKKAR_COMPLETE="bash_complete", COMP_WORDS="drakkar doc", COMP_CWORD="1")
    assert done.stdout.split() == ["plain,doctor"]


@pytest.mark.kubectl
def test_kubectl_finds_it_as_a_plugin(tmp_path: Path) -> None:
    from tests.conftest import kubectl

    plugin = tmp_path / "kubectl-drakkar"
    plugin.write_text(f"#!{sys.executable}\nfrom drakkar.cli import main\nmain()\n")
    plugin.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [kubectl(37), "drakkar", "free", "--bundle", BUNDLE],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("NODE ")
    usage = subprocess.run([kubectl(37), "drakkar"], env=environment, capture_output=True, text=True, check=False)
    assert usage.stdout.startswith("Usage: kubectl drakkar ")
