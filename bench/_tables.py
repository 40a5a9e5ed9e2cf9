"""Tables of figures with their bounds."""

from __future__ import annotations

import statistics
from dataclasses import dataclass


@dataclass
class Figure:
    """A measured figure: `values` in `unit`; `bound` is what its median must not exceed."""

    name: str
    values: list[float]
    unit: str
    bound: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def holds(self) -> bool:
        return self.bound is None or self.median <= self.bound


def show(figures: list[Figure]) -> bool:
    """Print the figures; whether all bounds hold."""
    header = ["figure", "min", "median", "max", "unit", "bound", "bound / median"]
    rows = [
        [
            figure.name,
            f"{min(figure.values):.2f}",
            f"{figure.median:.2f}",
            f"{max(figure.values):.2f}",
            figure.unit,
            "" if figure.bound is None else f"{figure.bound:g}",
            ""
            if figure.bound is None
            else f"{figure.bound / max(figure.median, 1e-9):.2f}×" + ("" if figure.holds else "  MISSED"),
        ]
        for figure in figures
    ]
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    for row in [header, *rows]:
        cells = [
            cell.ljust(width) if column in (0, 4) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
    return all(figure.holds for figure in figures)
