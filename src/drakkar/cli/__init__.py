"""The command line: one file per command, loaded when that command runs.

`drakkar --help` must answer in a tenth of a second, so this module imports nothing: commands come from a table, their
list is written without click, and what a command needs is imported by its own file. Every `DrakkarError` becomes one
sentence.
"""

from __future__ import annotations

import os
import sys
from typing import Any

ABOUT = "The whole GPU device contract on Kubernetes: inventory, allocation, preparation, injection."

COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("up", "Start an embedded cluster with simulated GPU machines."),
    "replay": ("replay", "Show a recorded cluster again: kubectl finds it as it was."),
    "down": ("down", "End a running embedded cluster."),
    "status": ("status", "Show the embedded clusters that run, their nodes and devices."),
    "doctor": ("doctor", "Say what is wrong with devices in a cluster or a bundle, worst first."),
    "explain": ("explain", "Say how a pod or claim got its devices, or why it did not."),
    "plan": ("plan", "Say whether manifests would fit, where, what is left, and what must go."),
    "free": ("free", "Say how many devices are free, and what still fits."),
    "who": ("who", "Say which pod, claim and container has a device, since when."),
    "top": ("top", "Watch nodes, devices, their holders, and pods that wait for devices."),
    "metrics": ("metrics", "Print or serve the cluster's devices as Prometheus metrics."),
    "board": ("board", "Serve a page that shows nodes, devices, claims and waiting pods."),
    "fault": ("fault", "Break a simulated node on purpose."),
    "verify": ("verify", "Compare the devices seen inside a pod with its claims and slices."),
    "audit": ("audit", "Say who may see every device, and which claims hold devices for nobody."),
    "capture": ("capture", "Take a bundle for `doctor`: objects, events, logs, nodes; no secrets."),
    "node-debug": ("node_debug", "Show what this node has: GPUs, CDI files, runtime, checkpoints."),
    "driver": ("driver", "Run a device driver as a process of its own, against any cluster."),
    "mig": ("mig", "Divide GPUs into static MIG instances by named layouts."),
    "device-plugin": ("device_plugin", "Offer GPUs to a kubelet the old way, as nvidia.com/gpu."),
    "models": ("models", "List the machines that can be simulated."),
    "preflight": ("preflight", "Check a cluster before a driver is installed, upgraded or removed."),
    "lint": ("lint", "Review manifests, chart values and alert rules before they are applied."),
    "migrate": ("migrate", "Move manifests from nvidia.com/gpu to claims, with a way back."),
    "cdi": ("cdi.group", "List, check and apply Container Device Interface files."),
    "hook": ("hook", "What a runtime runs beside a container before it starts: links, loader cache, modes."),
    "completion": ("completion", "Print a script that completes commands in a shell."),
    "version": ("version", "Print the version."),
}


def listing() -> str:
    """The help of `drakkar` itself."""
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name.ljust(width)}  {about}" for name, (_, about) in COMMANDS.items())
    return f"""Usage: {program()} [OPTIONS] COMMAND [ARGS]...

  {ABOUT}

Options:
  --version   Show the version and exit.
  -h, --help  Show this message and exit.

Commands:
{commands}"""


def program() -> str:
    """What people typed: kubectl finds ``kubectl-drakkar`` as a plugin of its own."""
    return "kubectl drakkar" if os.path.basename(sys.argv[0]) == "kubectl-drakkar" else "drakkar"  # noqa: PTH119


def main() -> None:
    """The console script."""
    if sys.argv[1:] in ([], ["-h"], ["--help"]) and "_DRAKKAR_COMPLETE" not in os.environ:
        print(listing())
        return
    from drakkar.errors import DrakkarError

    try:
        sys.exit(_run(sys.argv[1:]))
    except DrakkarError as error:
        _show(error)
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except Exception as error:
        _show_defect(error)
        sys.exit(70)


def _run(arguments: list[str]) -> int:
    """Runs the command and returns its status; those that run once per container do without click."""
    if arguments[:1] == ["hook"]:
        from drakkar.hooks.commands import main as hook

        return hook(arguments[1:])
    if arguments[:1] == ["cdi"]:
        from drakkar.cli.cdi.quick import quickly

        if quickly(arguments[1:]):
            return 0
    import click

    from drakkar.cli.root import root

    try:
        code = root(
            prog_name=program(), complete_var="_DRAKKAR_COMPLETE", standalone_mode=False
        )  # click hands the status of `Exit` back instead of raising it
    except click.exceptions.Abort:
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return code if isinstance(code, int) else 0


def _show_defect(error: Exception) -> None:
    """Something we did not think of: say so in one sentence, keep the traceback for those who want it."""
    import logging

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
