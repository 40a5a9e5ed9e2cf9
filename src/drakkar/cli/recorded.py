"""What `--on` names: the objects of the current cluster, of a bundle, or of a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
CLUSTER = "cluster"


def on(function: F) -> F:
    """--on, with the options that say which cluster is meant."""
    for option in (
        click.option("--context", default="", help="Context of the kubeconfig, for --on cluster."),
        click.option("--kubeconfig", type=click.Path(path_type=Path), help="The kubeconfig, for --on cluster."),
        click.option(
            "--on",
            "recorded",
            metavar="cluster|PATH",
            help="Judge against real devices: the current cluster, a bundle, or a YAML file of its objects.",
        ),
    ):
        function = option(function)
    return function


def objects_on(recorded: str | None, kubeconfig: Path | None, context: str) -> list[dict[str, Any]] | None:
    """The objects; None if nothing was named. Raises DrakkarError for what cannot be read."""
    if recorded is None:
        return None
    if recorded == CLUSTER:
        from drakkar.cli.snapshots import read, warn_unread

        snapshot, _ = read(None, kubeconfig, context, "")
        warn_unread(snapshot)
        return [dict(obj) for obj in snapshot.objects]
    path = Path(recorded)
    if path.is_dir() or path.name.endswith((".tar", ".tar.gz", ".tgz")):
        from drakkar.evidence.bundle import load

        if not path.is_dir() or (path / "objects.yaml").exists():
            return list(load(path).objects)
    from drakkar.migration.documents import Document, read_folder

    return [source.value for source in read_folder(path) if isinstance(source, Document)]
