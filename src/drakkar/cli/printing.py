"""How commands print an answer: JSON, YAML, or columns. Without click, which the quickest commands do without."""

from __future__ import annotations

import sys
from typing import Any


def emit(value: Any, form: str) -> None:
    """Print a plain value as JSON or YAML."""
    import msgspec

    if form == "json":
        data = msgspec.json.format(msgspec.json.encode(value, order="deterministic"), indent=2)
        sys.stdout.write(data.decode() + "\n")
    else:
        import yaml

        yaml.dump(value, sys.stdout, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False)


def table(header: list[str], rows: list[list[str]]) -> None:
    """Print columns as kubectl does."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    for row in [header, *rows]:
        print("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
