"""The embedded scheduler: Kubernetes 1.37's decisions, its words and its order of writes, over the API only."""

from drakkar.cluster.scheduler.scheduler import Scheduler

__all__ = ["Scheduler"]
