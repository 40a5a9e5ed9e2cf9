"""`drakkar preflight` judges by the defaults of the chart; the table it carries must not drift from the chart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from drakkar.migration.preflight.plan import charts

CHART = Path(__file__).resolve().parents[2] / "charts" / "drakkar"


def test_the_table_is_part_of_the_charts_values() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert _part_of(charts()["drakkar"].values, values) == []


def test_the_table_has_the_charts_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert charts()["drakkar"].version == chart["version"]
    assert chart["name"] in charts()["drakkar"].names


def _part_of(part: Any, whole: Any, path: str = "") -> list[str]:
    if isinstance(part, dict) and isinstance(whole, dict):
        return [text for key in part for text in _part_of(part[key], whole.get(key), f"{path}.{key}")]
    return [] if part == whole else [f"{path}: {part!r}, the chart has {whole!r}"]
