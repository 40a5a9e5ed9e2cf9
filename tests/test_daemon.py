"""What is there when a cluster has started is not walked again, and later collections are rare."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
from drakkar.daemon import THRESHOLDS, settle
before = len(gc.get_objects())
settle()
print(gc.get_threshold() == THRESHOLDS, gc.get_freeze_count() > before // 2, len(gc.get_objects()) < before // 10)
"""


def test_what_is_there_is_frozen_and_later_collections_are_rare() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "True"]
