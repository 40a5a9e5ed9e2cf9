"""`drakkar lint`: review files before they are applied."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drakkar.cli.options import emit
from drakkar.cli.recorded import objects_on, on

if TYPE_CHECKING:
    from drakkar.migration.documents import Source
    from drakkar.migration.lint import Context


@click.command("lint")
@click.argument("paths", nargs=-1, metavar="PATH...")
@on
@click.option("--target", default="1.36", show_default=True, help="Kubernetes version, or a range as 1.34..1.37.")
@click.option("--driver", default="0.5.0", show_default=True, help="Version of the GPU driver.")
@click.option("--dcgm-exporter", default="4.6.0-4.8.3", show_default=True, help="Version of dcgm-exporter.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "info"]),
    default="error",
    show_default=True,
    help="Exit with 1 from this severity on.",
)
@click.option("--codes", is_flag=True, help="List everything that can be found, and stop.")
@click.option("--fix", "fixing", is_flag=True, help="Put right what is certain, in the files; comments and order stay.")
@click.option("--diff", is_flag=True, help="Print what --fix would change, and change nothing.")
@click.option("--serve", metavar="[HOST]:PORT", help="Review what API servers ask about (a validating webhook).")
@click.option("--tls-cert", type=click.Path(path_type=Path), help="Certificate of --serve, PEM.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="Private key of --serve, PEM.")
@click.option(
    "--deny",
    type=click.Choice(["error", "warning", "info"]),
    help="With --serve: refuse objects with findings from this severity on; others only warn.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml", "sarif", "github"]),
    default="text",
    help="How to print the answer.",
)
def command(
    paths: tuple[str, ...],
    recorded: str | None,
    kubeconfig: Path | None,
    context: str,
    target: str,
    driver: str,
    dcgm_exporter: str,
    fail_on: str,
    codes: bool,
    fixing: bool,
    diff: bool,
    serve: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    deny: str | None,
    output: str,
) -> None:
    """Review the files of PATH... before they are applied; a folder is read with everything in it, - is standard input.

    Manifests of any kind, rendered charts, Helm values (NAME.values.yaml), counter files of dcgm-exporter (.csv), alert
    rules, kubelet and kubeadm configuration. A comment `# drakkar: ignore[CODE] reason` switches a finding off.
    """
    from drakkar.migration.findings import SEVERITIES
    from drakkar.migration.lint import lint_range

    if codes:
        return _list_codes(output)
    if serve is not None:
        contexts = _contexts(target, driver, dcgm_exporter)
        return _serve(serve, tls_cert, tls_key, deny or "", contexts, objects_on(recorded, kubeconfig, context))
    if not paths:
        raise click.UsageError("name a file or folder to review, or - for standard input")
    contexts = _contexts(target, driver, dcgm_exporter)
    inventory = objects_on(recorded, kubeconfig, context)
    if fixing or diff:
        return _fix(paths, contexts, inventory, diff=diff)
    sources = [source for path in paths for source in _read(path)]
    found = lint_range(sources, contexts, inventory=inventory)
    _print(found, len({source.file for source in sources}), output)
    worst = min((SEVERITIES.index(finding.severity) for finding in found), default=len(SEVERITIES))
    raise click.exceptions.Exit(1 if worst <= SEVERITIES.index(fail_on) else 0)


def _read(path: str) -> list[Source]:
    from drakkar.migration.documents import read_bytes, read_folder

    if path == "-":
        return read_bytes(sys.stdin.buffer.read(), "stdin")
    return read_folder(Path(path))


def _contexts(target: str, driver: str, exporter: str) -> list[Context]:
    from drakkar.errors import DrakkarError
    from drakkar.migration.lint import Context

    match = re.fullmatch(r"1\.(\d+)(?:(?:\.\.|…)1\.(\d+))?", target)
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise DrakkarError(
            f"--target {target!r} is no Kubernetes version",
            reason="UnknownVersion",
            subject="--target",
            expected="a version such as 1.36, or a range such as 1.34..1.37",
        )
    minors = range(int(match[1]), min(int(match[2] or match[1]), int(match[1]) + 20) + 1)
    return [Context(f"1.{minor}", driver, exporter) for minor in minors]


def _serve(
    address: str,
    certificate: Path | None,
    key: Path | None,
    deny: str,
    contexts: list[Context],
    inventory: list[dict[str, Any]] | None,
) -> None:
    """Answer AdmissionReviews until a signal comes."""
    import signal
    import threading

    from drakkar.cli.webhooks import serving
    from drakkar.migration.webhook import answer

    host, _, port = address.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise click.UsageError(f"--serve {address!r} is no [HOST]:PORT")
    if certificate is None or key is None:
        raise click.UsageError("--serve needs --tls-cert and --tls-key: API servers call webhooks by HTTPS only")
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    place = (host.strip("[]") or "0.0.0.0", int(port))  # noqa: S104 - what an empty host means everywhere
    with serving(place, lambda body: answer(body, contexts, deny=deny, inventory=inventory), certificate, key) as taken:
        click.echo(f"reviews at https://{place[0]}:{taken}/validate")
        sys.stdout.flush()
        while not ended.wait(0.5):
            pass


def _fix(
    paths: tuple[str, ...], contexts: list[Context], inventory: list[dict[str, Any]] | None, *, diff: bool
) -> None:
    """Fix files in place, or print the difference; standard input is fixed to standard output."""
    from difflib import unified_diff

    from drakkar.files import replace_file
    from drakkar.migration.fixing import fix

    before = _contents(paths)
    after = fix(before, contexts, inventory=inventory)
    for name, data in after.files.items():
        if diff:
            old, new = before[name].decode("utf-8-sig"), data.decode("utf-8-sig")
            click.echo("".join(unified_diff(old.splitlines(True), new.splitlines(True), name, name)), nl=False)
        elif name == "stdin":
            sys.stdout.write(data.decode("utf-8-sig"))
        elif data != before[name]:
            replace_file(Path(name), data, mode=Path(name).stat().st_mode & 0o777)
    for finding in after.findings:
        click.echo(f"{finding.file}:{finding.line}: fixed {finding.code}", err=True)
    count = len(after.findings)
    click.echo(f"{count} fix{'' if count == 1 else 'es'}" + (" possible" if diff else ""), err=True)


def _contents(paths: tuple[str, ...]) -> dict[str, bytes]:
    """Every file that is reviewed, by its path."""
    found: dict[str, bytes] = {}
    for path in paths:
        if path == "-":
            found["stdin"] = sys.stdin.buffer.read()
        else:
            for name in dict.fromkeys(source.file for source in _read(path)):
                found[name] = Path(name).read_bytes()
    return found


def _print(found: list[Any], files: int, output: str) -> None:
    from drakkar import __version__
    from drakkar.migration import reports

    if output == "text":
        click.echo(reports.text(found, files))
    elif output == "github":
        if found:
            click.echo(reports.github(found))
    elif output == "sarif":
        emit(reports.sarif(found, __version__), "json")
    else:
        emit([finding.to_dict() for finding in found], output)


def _list_codes(output: str) -> None:
    from drakkar.migration.findings import codes

    if output == "text":
        for name, code in codes().items():
            click.echo(f"{code.severity:<8} {name:<36} {code.meaning}")
    else:
        form = "yaml" if output == "yaml" else "json"
        emit({name: {"severity": code.severity, "meaning": code.meaning} for name, code in codes().items()}, form)
