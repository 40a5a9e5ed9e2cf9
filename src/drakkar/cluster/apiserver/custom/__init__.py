"""Custom resources: definitions become rows of the registry, schemas become the behaviour of their kinds."""

from drakkar.cluster.apiserver.custom.definitions import CustomResources

__all__ = ["CustomResources"]
