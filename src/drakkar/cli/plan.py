"""`drakkar plan`: would it fit, where, what is left, and what must go; does a rollout end; how many more fit."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drakkar.cli.options import emit
from drakkar.cli.snapshots import read, source, warn_unread

if TYPE_CHECKING:
    from drakkar.evidence.snapshot import Snapshot
    from drakkar.kube.quantity import Quantity
    from drakkar.planning.plan import Scene

FAILED = 4


@click.command("plan")
@click.option("-f", "--filename", "files", multiple=True, help="Manifests: a file, a folder, or - for standard input.")
@click.option(
    "--with-node", "with_nodes", multiple=True, metavar="MODEL[:N]", help="Nodes more; also NODE[:N] to copy one."
)
@click.option("--without-node", "without", multiple=True, metavar="NODE", help="A node less.")
@click.option(
    "--partitions/--no-partitions", default=None, help="Whether new nodes offer every partition (dynamic MIG)."
)
@click.option("--rollout", metavar="KIND/NAME", default="", help="Play the rollout of a workload.")
@click.option("--surge", default="", metavar="N|N%", help="With --rollout: in place of the workload's maxSurge.")
@click.option("--max-unavailable", default="", metavar="N|N%", help="With --rollout: in place of its maxUnavailable.")
@click.option("--capacity", is_flag=True, help="How many more devices of each class and kind fit.")
@click.option(
    "--share", "shares", multiple=True, metavar="NAME=AMOUNT", help="With --capacity: what one share asks for."
)
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", help="How to print it.")
@source
def command(
    files: tuple[str, ...],
    with_nodes: tuple[str, ...],
    without: tuple[str, ...],
    partitions: bool | None,
    rollout: str,
    surge: str,
    max_unavailable: str,
    capacity: bool,
    shares: tuple[str, ...],
    output: str,
    bundle: Path | None,
    kubeconfig: Path | None,
    context: str,
    namespace: str,
) -> None:
    """Say what would happen, on a copy of the cluster's state; nothing is written to it.

    \b
    drakkar plan -f manifests/                     would it fit now? where? what is left?
    drakkar plan -f job.yaml --with-node dgx-h100:2
    drakkar plan --without-node node-3             where would its pods go?
    drakkar plan --rollout deployment/serve        does the update end, or lock up?
    drakkar plan --capacity                        how many more of each kind fit

    Exits with 0 when everything fits, 1 when something does not, 4 when the question
    cannot be answered, 2 for a wrong command line.
    """
    from drakkar.errors import DrakkarError

    if (surge or max_unavailable) and not rollout:
        raise click.UsageError("--surge and --max-unavailable belong to --rollout")
    if shares and not capacity:
        raise click.UsageError("--share belongs to --capacity")
    if rollout and capacity:
        raise click.UsageError("--rollout and --capacity are two questions")
    if not (files or with_nodes or without or rollout or capacity):
        raise click.UsageError("what is to be planned? -f, --rollout, --capacity, --with-node or --without-node")
    gc.disable()  # one answer, then the process ends: collecting a million live objects again and again costs a second
    try:
        snapshot, space = read(bundle, kubeconfig, context, namespace)
        warn_unread(snapshot)
        scene = _scene(snapshot, files, space, with_nodes, without, partitions)
        if capacity:
            fits = _capacity(scene, shares, output)
        elif rollout:
            fits = _rollout(scene, rollout, space, surge, max_unavailable, output)
        else:
            fits = _plan(scene, output)
    except DrakkarError as error:
        error.exit_status = FAILED
        raise
    _leave(0 if fits else 1)


def _leave(status: int) -> None:
    """End at once where this is a process of its own: taking the objects apart can take longer than the answer took."""
    own = sys.__stdout__
    if own is not None and sys.stdout is own:
        own.flush()
        sys.stderr.flush()
        os._exit(status)
    raise click.exceptions.Exit(status)


def _scene(
    snapshot: Snapshot,
    files: tuple[str, ...],
    namespace: str,
    with_nodes: tuple[str, ...],
    without: tuple[str, ...],
    partitions: bool | None,
) -> Scene:
    from drakkar.planning.files import read_manifests
    from drakkar.planning.plan import scene_of

    return scene_of(
        snapshot,
        read_manifests(files),
        namespace=namespace,
        with_nodes=with_nodes,
        without=without,
        partitions=partitions,
    )


def _plan(scene: Scene, output: str) -> bool:
    from drakkar.planning.plan import plan
    from drakkar.planning.render import plan_text

    found = plan(scene)
    _print(plan_text(found) if output == "table" else found.to_dict(), output)
    return found.fits


def _rollout(scene: Scene, target: str, namespace: str, surge: str, unavailable: str, output: str) -> bool:
    from drakkar.planning.plan import workload_of
    from drakkar.planning.render import rollout_text
    from drakkar.planning.rollout import rollout_of

    workload = workload_of(scene, target, namespace)
    found = rollout_of(scene.cluster, workload, surge=surge, unavailable=unavailable)
    _print(rollout_text(found) if output == "table" else found.to_dict(), output)
    return found.ends


def _capacity(scene: Scene, shares: tuple[str, ...], output: str) -> bool:
    from drakkar.planning.capacity import capacity_of
    from drakkar.planning.render import capacity_text

    found = capacity_of(scene.cluster, _amounts(shares))
    _print(capacity_text(found) if output == "table" else found.to_dict(), output)
    return True


def _amounts(words: tuple[str, ...]) -> dict[str, Quantity]:
    from drakkar.kube.quantity import Quantity, QuantityError

    found = {}
    for word in words:
        name, sign, amount = word.partition("=")
        try:
            if not (name and sign and amount):
                raise click.BadParameter(f"{word!r} is not NAME=AMOUNT, such as memory=10Gi", param_hint="--share")
            found[name] = Quantity.parse(amount)
        except QuantityError:
            raise click.BadParameter(f"{amount!r} is no quantity, such as 10Gi", param_hint="--share") from None
    return found


def _print(value: Any, output: str) -> None:
    if output == "table":
        click.echo(value, nl=False)
    else:
        emit(value, output)
