"""Tests of drivers use the small API server of the inventory's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "inventory"))
