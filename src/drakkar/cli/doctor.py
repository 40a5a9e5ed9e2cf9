"""`drakkar doctor`: why workloads do not get their devices, for a cluster or a bundle."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drakkar.cli.options import connection, emit
from drakkar.cli.printing import coloured

if TYPE_CHECKING:
    from drakkar.diagnosis.survey import Survey
    from drakkar.diagnosis.verdict import Verdict
    from drakkar.evidence.snapshot import Snapshot

WRONG, UNDECIDED, FAILED = 1, 3, 4
_FORMS = ("text", "wide", "json", "yaml", "sarif", "junit")


@click.command("doctor")
@click.argument("targets", nargs=-1, metavar="[BUNDLE] [TARGET]")
@click.option("--bundle", type=click.Path(path_type=Path), help="A bundle (folder or tar) instead of a cluster.")
@click.option("--watch", is_flag=True, help="Look again and again, and tell what changes.")
@click.option("--every", type=click.FloatRange(0.1), default=3.0, show_default=True, help="Seconds between two looks.")
@click.option("--explain-cause", "code", metavar="CODE", default="", help="The page about a cause; `list` lists them.")
@click.option("-o", "--output", type=click.Choice(_FORMS), default="text", help="How to print the answer.")
@connection
def command(
    targets: tuple[str, ...],
    bundle: Path | None,
    watch: bool,
    every: float,
    code: str,
    output: str,
    kubeconfig: Path | None,
    context: str,
    namespace: str,
) -> None:
    """Say what is wrong on the way of devices into containers, the worst first.

    \b
    drakkar doctor                        the whole cluster: each workload, each node
    drakkar doctor pod/train-0            one target: pod, claim, deployment, statefulset, job,
                                          daemonset, node, computedomain
    drakkar doctor bundle/ | b.tar.gz     what `drakkar capture` made; no cluster is needed
    drakkar doctor objects.json           what `kubectl get -o json` printed
    drakkar doctor --explain-cause CODE   symptom, evidence, repair and prevention

    Exits with 0 when nothing is wrong, 1 when something is, 3 when the evidence cannot decide,
    4 when nothing could be read, 2 for a wrong command line.
    """
    from drakkar.errors import DrakkarError

    try:
        if code:
            _print_page(code, output)
            return
        place, target = _sorted_out(targets, bundle)
        space = namespace
        if watch:
            from drakkar.cli.watching import watch as follow

            follow(place, target, kubeconfig, context, space, every)
            return
        gc.disable()  # one answer and the process ends: what a large cluster makes is not worth looking through
        snapshot, here = _snapshot(place, target, kubeconfig, context, space, announce=output in ("text", "wide"))
        status = _diagnose(snapshot, target, space, here, output, str(place or ""))
    except DrakkarError as error:
        error.exit_status = FAILED
        raise
    raise click.exceptions.Exit(status)


def _sorted_out(words: tuple[str, ...], bundle: Path | None) -> tuple[Path | None, str]:
    """Which word is a bundle and which a target: a target begins with a kind, a bundle is there as a file."""
    from drakkar.diagnosis.targets import KINDS
    from drakkar.errors import DrakkarError

    target = ""
    for word in words:
        kind, slash, name = word.partition("/")
        if slash and name and kind.lower() in KINDS and not target:
            target = word
        elif bundle is None and (
            Path(word).exists() or "/" not in word or word.endswith((".tgz", ".tar.gz", ".tar", ".json", ".yaml"))
        ):
            bundle = Path(word)
        else:
            raise DrakkarError(
                f"{word!r} is neither a target nor a bundle",
                reason="InvalidTarget",
                expected="kind/name (pod/train-0, claim/…, node/…, deployment/…), a folder, or a tar archive",
            )
    return bundle, target


def _snapshot(
    bundle: Path | None, target: str, kubeconfig: Path | None, context: str, namespace: str, *, announce: bool
) -> tuple[Snapshot, str]:
    """What is known, and the namespace of names without one; says what was read before anything is thought about."""
    if bundle is not None:
        from drakkar.evidence.recorded import load

        snapshot, here = load(bundle), "default"
    else:
        import asyncio

        from drakkar.cli.snapshots import taken

        snapshot, here = asyncio.run(taken(kubeconfig, context, namespace))
    if announce:
        from drakkar.evidence.snapshot import summary

        click.echo(f"{bundle or 'cluster'}: {summary(snapshot)}\n")
        sys.stdout.flush()
    return snapshot, here


def _diagnose(snapshot: Snapshot, target: str, namespace: str, here: str, form: str, name: str) -> int:
    from drakkar.diagnosis.reports import verdict_entry
    from drakkar.diagnosis.survey import survey

    if target:
        from drakkar.diagnosis.explain import explain

        verdict = explain(snapshot, target, namespace=namespace or here)
        if form in ("text", "wide"):
            _print_verdict(verdict, form)
        elif form in ("json", "yaml"):
            emit(verdict.to_dict(), form)
        else:
            _print_report(verdict_entry(verdict), form, name)
        return _status(verdict)
    found = survey(snapshot, namespace=namespace)
    if form in ("text", "wide"):
        from drakkar.diagnosis.reports import survey_text

        if not found.verdict.healthy:
            _print_verdict(found.verdict, form)
            click.echo()
        click.echo(coloured(survey_text(found, width=_width(form))), nl=False)
    elif form in ("json", "yaml"):
        emit(found.to_dict(), form)
    else:
        _print_report(found, form, name)
    return _status(found.verdict)


def _print_verdict(verdict: Verdict, form: str) -> None:
    """The verdict with its evidence; the records of each device are `explain`'s, or those of --output wide."""
    from drakkar.diagnosis.render import text

    click.echo(text(verdict, width=_width(form), records=form == "wide"), nl=False)


def _print_report(found: Survey, form: str, name: str) -> None:
    from drakkar import __version__
    from drakkar.diagnosis.reports import junit, sarif

    if form == "junit":
        click.echo(junit(found, name), nl=False)
    else:
        emit(sarif(found, __version__, name), "json")


def _width(form: str) -> int:
    if form != "wide":
        return 80
    import shutil

    return max(80, shutil.get_terminal_size((160, 24)).columns)


def _status(verdict: Verdict) -> int:
    from drakkar.diagnosis import verdict as verdicts

    return 0 if verdict.healthy else UNDECIDED if verdict.cause == verdicts.UNDECIDED else WRONG


def _print_page(code: str, form: str) -> None:
    from drakkar.diagnosis.causes import cause_of, causes, page_of, page_text

    if code == "list":
        listed: list[dict[str, Any]] = [cause._asdict() for cause in causes().values()]
        if form in ("json", "yaml"):
            emit(listed, form)
            return
        width = max(len(cause["code"]) for cause in listed)
        for cause in listed:
            click.echo(f"{cause['code'].ljust(width)}  {cause['boundary'].ljust(11)}  {cause['meaning']}")
    elif form in ("json", "yaml"):
        page = page_of(code)
        emit({**cause_of(code)._asdict(), **page._asdict(), "references": list(page.references)}, form)
    else:
        click.echo(page_text(code), nl=False)
