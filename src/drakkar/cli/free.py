"""`drakkar free`: how many devices are free, and what still fits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from drakkar.cli.options import emit, output, table
from drakkar.cli.snapshots import read, source, warn_unread

if TYPE_CHECKING:
    from drakkar.fleet.tallies import Tally


@click.command("free")
@click.option("--by", type=click.Choice(["node", "class", "product", "profile"]), default="node", show_default=True)
@click.option("--driver", default="", help="Only devices of this driver.")
@source
@output
def command(
    by: str, driver: str, bundle: Path | None, kubeconfig: Path | None, context: str, namespace: str, output: str
) -> None:
    """Show how many devices are held, tainted, stranded and free.

    \b
    TAINTED   refused by a taint of the device
    STRANDED  neither, and still not to be had: its node is cordoned or not ready, its pool is
              incomplete, or partitions in use took the counters it needs
    FREE      how many can be had at once; ×2, ×4, ×8: pods that want so many on one node
    """
    from drakkar.fleet.devices import Fleet
    from drakkar.fleet.tallies import SIZES, tallies

    snapshot, _ = read(bundle, kubeconfig, context, namespace)
    warn_unread(snapshot)
    found = tallies(Fleet(snapshot), by)  # type: ignore[arg-type]  # click admits only its words
    found = [tally for tally in found if driver in ("", tally.driver)]
    if output != "text":
        emit({"by": by, "groups": [tally.to_dict() for tally in found]}, output)
        return
    if not found:
        click.echo("no devices are published" + (f" by {driver}" if driver else ""))
        return
    sizes = [size for size in SIZES if size > 1]
    header = [by.upper(), "DRIVER", "TYPE", "TOTAL", "HELD", "TAINTED", "STRANDED", "FREE"]
    table([*header, *(f"×{size}" for size in sizes)], [_row(tally, sizes) for tally in found])


def _row(tally: Tally, sizes: list[int]) -> list[str]:
    counts = (tally.total, tally.states["held"], tally.states["tainted"], tally.states["stranded"], tally.free)
    fits = (str(tally.fits(size)) for size in sizes)
    return [tally.group or "-", tally.driver, tally.kind or "-", *map(str, counts), *fits]
