"""Kubernetes' controllers for the embedded cluster: one small reconciler per file, over the API only."""

from drakkar.cluster.controllers.group import ControllerGroup, run_controllers

__all__ = ["ControllerGroup", "run_controllers"]
