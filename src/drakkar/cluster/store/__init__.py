"""The cluster's memory: objects by kind, one version counter, recent changes for watchers, an optional durable log.

The shape is that of kube-apiserver's watch cache over etcd with the two folded together: the cache *is* the storage,
and what etcd adds (survival of the process) is `log.Log`.
"""

from drakkar.cluster.store.changes import Change, StoredObject, Watcher
from drakkar.cluster.store.collection import Collection, ExpiredVersionError
from drakkar.cluster.store.log import Log, LogError
from drakkar.cluster.store.store import Store

__all__ = ["Change", "Collection", "ExpiredVersionError", "Log", "LogError", "Store", "StoredObject", "Watcher"]
