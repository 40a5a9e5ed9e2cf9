"""Fleet files written down in a test."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path

from drakkar.cluster.fleet_file import Fleet, read_fleet
from drakkar.planning.files import read_manifests


def fleet_in(folder: Path, text: str, *, others: Iterable[str] = ()) -> Fleet:
    """What a file with this text says; `others` are nodes that the cluster will have beside it."""
    file = folder / "fleet.yaml"
    file.write_text(textwrap.dedent(text))
    return read_fleet(file, manifests=read_manifests, others=others)
