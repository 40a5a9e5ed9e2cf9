"""`drakkar audit`: who may see or give away every device, and which claims hold devices for nobody."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from drakkar.cli.options import emit, output, table
from drakkar.cli.printing import coloured
from drakkar.cli.snapshots import read, source, warn_unread

if TYPE_CHECKING:
    from drakkar.diagnosis.ownership import Audit


@click.command("audit")
@click.option("--rights", is_flag=True, help="Also list every right over devices and who has it.")
@source
@output
def command(
    rights: bool, bundle: Path | None, kubeconfig: Path | None, context: str, namespace: str, output: str
) -> None:
    """Say who owns what.

    \b
    - who may create claims with admin access, and who may permit it by a label
    - who may write slices and the status of claims
    - claims that hold devices and that nobody uses, or whose pod is gone
    - GPUs that a device plugin and a DRA driver both hand out, and other allocators

    Exits with 1 when there is something to act upon.
    """
    from drakkar.diagnosis.ownership import audit

    snapshot, _ = read(bundle, kubeconfig, context, namespace, rights=True)
    found = audit(snapshot)
    if output != "text":
        emit(found.to_dict(), output)
    else:
        warn_unread(snapshot)
        _show(found, rights)
    raise click.exceptions.Exit(1 if found.warnings else 0)


def _show(found: Audit, rights: bool) -> None:
    import textwrap

    for notice in found.notices:
        mark = "!!" if notice.level == "warning" else "  "
        text = f"{mark} {notice.subject}: {notice.sentence} ({notice.code})"
        folded = textwrap.fill(text, 80, subsequent_indent="     ", break_long_words=False, break_on_hyphens=False)
        click.echo(coloured(folded))
        for item in notice.evidence[:3] if notice.level == "warning" else ():
            line = f"   - {item.text}" + (f" ({item.source})" if item.source else "")
            click.echo(
                textwrap.fill(line, 80, subsequent_indent="     ", break_long_words=False, break_on_hyphens=False)
            )
        if notice.next_step and notice.level == "warning":
            click.echo(
                textwrap.fill(
                    f"   next: {notice.next_step}", 80, subsequent_indent="     ",
                    break_long_words=False, break_on_hyphens=False,
                )
            )  # fmt: skip
    if not found.notices:
        click.echo("nothing to act upon")
    if rights:
        click.echo()
        table(
            ["RIGHT", "WHO", "WHERE", "THROUGH"],
            [[holder.right.code, holder.who, holder.namespace or "*", holder.through] for holder in found.holders],
        )
