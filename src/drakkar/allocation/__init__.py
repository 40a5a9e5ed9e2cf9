"""Who gets which device: pools, requests, selection, constraints, counters, capacity, search, result, refusal.

An independent implementation of the allocator that the Kubernetes 1.37 scheduler runs (KEP-4381 and its followers),
pure: no I/O, no clock, nothing handed in is changed.
"""

from drakkar.allocation.allocate import Allocation, Pod, allocate
from drakkar.allocation.errors import AllocationError
from drakkar.allocation.features import Features
from drakkar.allocation.refusal import Refusal
from drakkar.allocation.state import ClusterState
from drakkar.api.identities import DeviceKey

__all__ = ["Allocation", "AllocationError", "ClusterState", "DeviceKey", "Features", "Pod", "Refusal", "allocate"]
