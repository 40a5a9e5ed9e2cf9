"""`drakkar migrate`: from extended resources of the device plugin to claims, with a way back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from drakkar.cli.options import emit
from drakkar.cli.recorded import objects_on, on

if TYPE_CHECKING:
    from drakkar.migration.converting.plan import Plan
    from drakkar.migration.converting.work import Settings
    from drakkar.migration.documents import Document

F = TypeVar("F", bound=Callable[..., Any])
STDIN = "-"


def _input(function: F) -> F:
    option = click.option(
        "-f",
        "--filename",
        "paths",
        multiple=True,
        required=True,
        metavar="PATH",
        help="A file or folder; - reads stdin.",
    )
    return option(function)


def _how(function: F) -> F:
    for option in (
        click.option(
            "--to",
            type=click.Choice(["claims", "extended-resource"]),
            default="claims",
            show_default=True,
            help="Rewrite pods to claims, or keep them and put classes behind the old names (KEP-5004).",
        ),
        click.option("--target", default="1.36", show_default=True, help="Kubernetes version of the cluster."),
        click.option("-n", "--namespace", "namespaces", multiple=True, help="Only this namespace; may be repeated."),
        click.option(
            "--accept", multiple=True, metavar="CODE", help="Accept a loss of meaning that is refused otherwise."
        ),
    ):
        function = option(function)
    return on(function)


_output = click.option(
    "--output", "form", type=click.Choice(["text", "json", "sarif"]), default="text", help="How to print the report."
)


@click.group("migrate")
def command() -> None:
    """Move manifests from nvidia.com/gpu to claims: plan, apply, verify, rollback."""


@command.command("plan")
@_input
@_how
@_output
@click.option("--all", "everything", is_flag=True, help="Show objects that are not concerned, too.")
def plan_command(
    paths: tuple[str, ...],
    recorded: str | None,
    kubeconfig: Path | None,
    context: str,
    to: str,
    target: str,
    namespaces: tuple[str, ...],
    accept: tuple[str, ...],
    form: str,
    everything: bool,
) -> None:
    """Report what would be kept, changed, lose its meaning, need a hand, or be refused; nothing is written.

    The exit status is 1 if something is refused.
    """
    settings = _settings(to, target, namespaces, accept)
    plan, _ = _plan(paths, settings, objects_on(recorded, kubeconfig, context))
    _print(plan, form, everything=everything)
    raise click.exceptions.Exit(1 if plan.refused else 0)


@command.command("apply")
@_input
@_how
@_output
@click.option("-o", "--out", type=click.Path(path_type=Path), help="The folder to write to, else standard output.")
def apply_command(
    paths: tuple[str, ...],
    recorded: str | None,
    kubeconfig: Path | None,
    context: str,
    to: str,
    target: str,
    namespaces: tuple[str, ...],
    accept: tuple[str, ...],
    form: str,
    out: Path | None,
) -> None:
    """Write the rewritten files: comments and order stay, templates and classes are added, originals are kept.

    What is refused is written as it was; the exit status is 1 then.
    """
    from drakkar.migration.converting.output import rendered, written

    settings = _settings(to, target, namespaces, accept)
    plan, inputs = _plan(paths, settings, objects_on(recorded, kubeconfig, context))
    if out is None:
        texts = rendered(plan, {name: data.decode("utf-8-sig") for name, data in inputs.items()})
        sys.stdout.write(_one_stream(texts))
        _print(plan, form, everything=False, err=True)
    else:
        names = written(plan, inputs, out)
        _print(plan, form, everything=False)
        if form == "text":
            click.echo(f"written to {out}: {', '.join(names) or 'nothing changed'}")
    raise click.exceptions.Exit(1 if plan.refused else 0)


@command.command("verify")
@_input
@on
@click.option("--output", "form", type=click.Choice(["text", "json"]), default="text", help="How to print the report.")
def verify_command(
    paths: tuple[str, ...], recorded: str | None, kubeconfig: Path | None, context: str, form: str
) -> None:
    """Prove that the new form does what the old one did, on embedded copies of the cluster.

    Reads the output folder of `apply`, which has both forms. Tried are: which devices every pod template gets on every
    kind of node, what every quota admits, and whether workloads apply and roll out. No container runs; pods of
    operators are made from a table. The exit status is 1 if something differs.
    """
    import asyncio

    from drakkar.cli.sandboxes import sandbox
    from drakkar.migration.verifying.verify import verify

    old, new = _both_forms(paths)
    result = asyncio.run(verify(old, new, sandbox, recorded=objects_on(recorded, kubeconfig, context)))
    if form == "json":
        rows = [{"what": c.what, "subject": c.subject, "ok": c.ok, "message": c.message} for c in result.checks]
        emit({"ok": result.ok, "nodes": result.nodes, "devices": result.devices, "checks": rows}, "json")
    else:
        for check in result.checks:
            word = {True: "same", False: "DIFFERS", None: "not compared"}[check.ok]
            click.echo(f"{word}: {check.what} of {check.subject}: {check.message}")
        failed = sum(check.ok is False for check in result.checks)
        open_ = sum(check.ok is None for check in result.checks)
        click.echo(
            f"{len(result.checks)} checks on {result.nodes} nodes with {result.devices} devices: "
            + (f"{failed} differ" if failed else "nothing differs")
            + (f", {open_} could not be compared" if open_ else "")
        )
    raise click.exceptions.Exit(0 if result.ok else 1)


def _both_forms(paths: tuple[str, ...]) -> tuple[list[Document], list[Document]]:
    """The documents before and after, from what `apply` wrote. Raises DrakkarError if one of them is not there."""
    from drakkar.errors import DrakkarError
    from drakkar.migration.converting.output import RECORD
    from drakkar.migration.converting.rollback import read_tree, restore_folder

    files: dict[str, bytes] = {}
    for path in paths:
        if path == STDIN:
            files["stdin.yaml"] = sys.stdin.buffer.read()
        else:
            files |= read_tree(Path(path)) if Path(path).is_dir() else _file(Path(path))
    restored = restore_folder(files)
    problems = [problem for each in restored for problem in each.problems]
    if problems or all(each.how == "unchanged" for each in restored):
        raise DrakkarError(
            problems[0] if problems else "nothing here says what it was before a migration",
            reason="NoOldForm",
            subject=", ".join(paths),
            expected=f"a folder that `drakkar migrate apply -o` wrote, with its {RECORD}",
        )
    now = {name: data for name, data in files.items() if not name.startswith(f"{RECORD}/")}
    before = {each.name: each.data for each in restored if each.data is not None}
    return _documents(before), _documents(now)


def _documents(files: dict[str, bytes]) -> list[Document]:
    from drakkar.migration.documents import Document, read_bytes

    sources = [source for name, data in files.items() if _reads(name) for source in read_bytes(data, name)]
    return [source for source in sources if isinstance(source, Document)]


@command.command("rollback")
@_input
@click.option("-o", "--out", type=click.Path(path_type=Path), help="The folder to write to, else standard output.")
@click.option("--output", "form", type=click.Choice(["text", "json"]), default="text", help="How to print the report.")
def rollback_command(paths: tuple[str, ...], out: Path | None, form: str) -> None:
    """Take back what `apply` wrote: byte for byte from the kept originals, else by the annotations of the objects.

    Reads the output folder of `apply`, single files, or objects of a cluster (kubectl get … -o yaml). The exit status
    is 1 if something could not be taken back.
    """
    from drakkar.migration.converting.rollback import read_tree, restore_folder, restore_text

    found = []
    for path in paths:
        if path == STDIN:
            found.append(restore_text("stdin", sys.stdin.buffer.read()))
        elif Path(path).is_dir():
            found += restore_folder(read_tree(Path(path)))
        else:
            found += restore_folder(_file(Path(path)))
    if out is None:
        sys.stdout.write(_one_stream({each.name: each.data.decode() for each in found if each.data is not None}))
    else:
        from drakkar.files import replace_file

        for each in found:
            if each.data is not None:
                (out / each.name).parent.mkdir(parents=True, exist_ok=True)
                replace_file(out / each.name, each.data)
    problems = [problem for each in found for problem in each.problems]
    if form == "json":
        rows = [{"file": each.name, "how": each.how, "problems": list(each.problems)} for each in found]
        if out is not None:
            emit(rows, "json")
    else:
        for each in found:
            if each.how != "unchanged":
                click.echo(f"{each.name}: {each.how}", err=out is None)
        for problem in problems:
            click.echo(f"not taken back: {problem}", err=True)
    raise click.exceptions.Exit(1 if problems else 0)


def _settings(to: str, target: str, namespaces: tuple[str, ...], accept: tuple[str, ...]) -> Settings:
    from drakkar.errors import DrakkarError
    from drakkar.migration.context import Context
    from drakkar.migration.converting.work import LOSSES, Settings

    Context(target)  # raises for what is no version
    unknown = sorted(set(accept) - set(LOSSES))
    if unknown:
        raise DrakkarError(
            f"{unknown[0]!r} is no loss that can be accepted",
            reason="UnknownCode",
            subject="--accept",
            expected="one of " + ", ".join(sorted(LOSSES)),
        )
    return Settings(to, target, frozenset(namespaces), frozenset(accept))


def _plan(
    paths: tuple[str, ...], settings: Settings, recorded: list[dict[str, Any]] | None
) -> tuple[Plan, dict[str, bytes]]:
    from drakkar.migration.converting.plan import make_plan
    from drakkar.migration.documents import read_bytes

    inputs = _inputs(paths)
    sources = [source for name, data in inputs.items() if _reads(name) for source in read_bytes(data, name)]
    return make_plan(sources, settings, recorded), inputs


def _reads(name: str) -> bool:
    return name == "stdin" or name.endswith((".yaml", ".yml", ".json"))


def _inputs(paths: tuple[str, ...]) -> dict[str, bytes]:
    """Every file by its name below the folder it was found in."""
    from drakkar.migration.converting.rollback import read_tree

    found: dict[str, bytes] = {}
    for path in paths:
        if path == STDIN:
            found["stdin"] = sys.stdin.buffer.read()
        elif Path(path).is_dir():
            found |= {name: data for name, data in read_tree(Path(path)).items() if not name.startswith(".")}
        else:
            found |= _file(Path(path))
    return found


def _file(path: Path) -> dict[str, bytes]:
    from drakkar.errors import DrakkarError

    try:
        return {path.name: path.read_bytes()}
    except OSError as error:
        raise DrakkarError(
            f"cannot read {path}: {error.strerror or error}",
            reason="NoSuchFile",
            subject=str(path),
            expected="a file or folder of manifests, or - for standard input",
        ) from None


def _one_stream(texts: dict[str, str]) -> str:
    """Several files as one stream of documents, classes first."""
    from drakkar.migration.converting.output import CLASSES_FILE

    ordered = sorted(texts.items(), key=lambda item: item[0] != CLASSES_FILE)
    return "---\n".join(text if text.endswith("\n") else text + "\n" for _, text in ordered if text.strip())


def _print(plan: Plan, form: str, *, everything: bool, err: bool = False) -> None:
    from drakkar import __version__
    from drakkar.migration.converting import reports

    if form == "text":
        click.echo(reports.as_text(plan, everything=everything), err=err)
    elif not err:
        emit(reports.as_json(plan) if form == "json" else reports.as_sarif(plan, __version__), "json")
