"""Which node a pod may run on and which of them is best: pure functions over snapshots, as Kubernetes 1.37 decides it.

Nothing here performs I/O or reads a clock. The embedded scheduler drives these functions with live state, and the
"would this fit" question of `plan` drives them with a snapshot.
"""
