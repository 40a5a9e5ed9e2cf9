"""`drakkar preflight`: what would go wrong with installing, upgrading or removing a GPU driver, said beforehand."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drakkar.cli.options import connection, emit, output

if TYPE_CHECKING:
    from drakkar.evidence.snapshot import Snapshot
    from drakkar.migration.preflight import ClusterFacts

_MARKS = {"ok": "ok", "warning": "WARN", "failed": "FAIL", "unknown": "?"}


@click.group("preflight", invoke_without_command=True)
@click.option("--chart", default="drakkar", show_default=True, help="drakkar, or dra-driver-nvidia-gpu.")
@click.option(
    "--version", "version", default="", metavar="VERSION", help="Planned version; the newest known by default."
)
@click.option("--values", "values", type=click.Path(path_type=Path), multiple=True, help="Values file, as for helm.")
@click.option("--release", default="", help="Name of the release to upgrade, if there are several.")
@click.option("--bundle", type=click.Path(path_type=Path), help="A captured bundle instead of a cluster.")
@connection
@output
@click.pass_context
def command(
    ctx: click.Context,
    chart: str,
    version: str,
    values: tuple[Path, ...],
    release: str,
    bundle: Path | None,
    kubeconfig: Path | None,
    context: str,
    namespace: str,
    output: str,
) -> None:
    """Check a cluster before a GPU driver's chart is installed or upgraded. Exits with 1 when a check failed.

    Nothing is changed. What cannot be read (Secrets, metrics) leaves its check unknown.
    """
    if ctx.invoked_subcommand is not None:
        return
    from drakkar.migration.preflight import FAILED, Plan, preflight

    plan = Plan(chart, version, _values(values), release)
    results = preflight(_facts(bundle, kubeconfig, context), plan)
    failed = [one for one in results if one.status == FAILED]
    if output != "text":
        emit({"chart": chart, "version": plan.target, "results": [one.to_dict() for one in results]}, output)
    else:
        width = max(len(one.check) for one in results)
        for one in results:
            click.echo(f"{_MARKS[one.status]:<5} {one.check:<{width}}  {one.message}")
            if one.next_step and one.status != "ok":
                click.echo(f"{'':<5} {'':<{width}}    next: {one.next_step}")
        counts = {mark: sum(one.status == status for one in results) for status, mark in _MARKS.items()}
        click.echo(f"\n{chart} {plan.target}: " + ("not ready" if failed else "ready") + _summary(counts))
    ctx.exit(1 if failed else 0)


@command.command("uninstall")
@click.option("--driver", default="gpu.nvidia.com", show_default=True, help="The driver that is to go.")
@click.option("--bundle", type=click.Path(path_type=Path), help="A captured bundle instead of a cluster.")
@connection
@output
@click.pass_context
def uninstall(
    ctx: click.Context,
    driver: str,
    bundle: Path | None,
    kubeconfig: Path | None,
    context: str,
    namespace: str,
    output: str,
) -> None:
    """List the pods and claims that must go before the driver does, with the commands. Exits with 1 if there are."""
    from drakkar.evidence.snapshot import name_of, namespace_of
    from drakkar.migration.preflight.uninstall import blockers, waiting

    snapshot = _snapshot(bundle, kubeconfig, context)
    found = blockers(snapshot, driver)
    pending = [f"{namespace_of(pod)}/{name_of(pod)}" for pod in waiting(snapshot, driver)]
    if output != "text":
        emit({"driver": driver, "blockers": [one.to_dict() for one in found], "waiting": pending}, output)
    else:
        for one in found:
            where = f" on {one.node}" if one.node else ""
            click.echo(f"{one.kind} {one.namespace}/{one.name}{where}: {one.why}")
            click.echo(f"  {one.command}")
        if pending:
            click.echo(f"waiting for devices, and for ever without a driver: {', '.join(pending)}")
        if snapshot.unread:
            click.echo("not read: " + "; ".join(snapshot.unread), err=True)
        click.echo(f"{len(found)} objects must go first" if found else f"nothing holds devices of {driver}: it can go")
    ctx.exit(1 if found else 0)


def _summary(counts: dict[str, int]) -> str:
    parts = [f"{counts[mark]} {word}" for mark, word in (("FAIL", "failed"), ("WARN", "warnings"), ("?", "unknown"))]
    return f" ({', '.join(part for part in parts if not part.startswith('0 '))})".replace(" ()", "")


def _facts(bundle: Path | None, kubeconfig: Path | None, context: str) -> ClusterFacts:
    from drakkar.migration.preflight.gather import gather, recorded

    if bundle is not None:
        return recorded(_snapshot(bundle, kubeconfig, context))

    async def live() -> ClusterFacts:
        from drakkar.cli.clients import connect

        client, _ = connect(kubeconfig, context)
        try:
            return await gather(client)
        finally:
            await client.close()

    return asyncio.run(live())


def _snapshot(bundle: Path | None, kubeconfig: Path | None, context: str) -> Snapshot:
    if bundle is not None:
        from drakkar.evidence.bundle import load

        return load(bundle)

    async def live() -> Snapshot:
        from drakkar.cli.clients import connect
        from drakkar.evidence.take import take

        client, _ = connect(kubeconfig, context)
        try:
            return await take(client, logs_of=())
        finally:
            await client.close()

    return asyncio.run(live())


def _values(paths: tuple[Path, ...]) -> dict[str, Any]:
    from drakkar.errors import DrakkarError
    from drakkar.kube import yamltext
    from drakkar.migration.preflight.facts import merged

    result: dict[str, Any] = {}
    for path in paths:
        try:
            value = yamltext.load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise DrakkarError(f"cannot read the values file {path}: {error}", subject=str(path)) from error
        except yamltext.YamlError as error:
            raise DrakkarError(f"{path} is no YAML: {error}", subject=str(path)) from error
        if value is not None and not isinstance(value, dict):
            raise DrakkarError(f"{path} holds no values", subject=str(path), expected="a mapping")
        result = merged(result, value or {})
    return result
