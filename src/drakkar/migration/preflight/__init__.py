"""Checks of a cluster before a GPU driver is installed, upgraded or removed.

What goes wrong with an installation is known beforehand in most cases: an API that is not served, a runtime that does
not read CDI files, a device plugin that hands out the same GPUs, a chart that was renamed. Each check is a function of
what the cluster is (`ClusterFacts`) and what is planned (`Plan`), and never asks the cluster itself; `gather` reads it,
from a live cluster or a captured bundle.
"""

from drakkar.migration.preflight.facts import ClusterFacts, Release, Setting
from drakkar.migration.preflight.plan import Plan
from drakkar.migration.preflight.results import FAILED, OK, UNKNOWN, WARNING, Result
from drakkar.migration.preflight.run import CHECKS, preflight
from drakkar.migration.preflight.uninstall import Blocker, blockers

__all__ = [
    "CHECKS",
    "FAILED",
    "OK",
    "UNKNOWN",
    "WARNING",
    "Blocker",
    "ClusterFacts",
    "Plan",
    "Release",
    "Result",
    "Setting",
    "blockers",
    "preflight",
]
