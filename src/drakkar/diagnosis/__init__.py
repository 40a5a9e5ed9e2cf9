"""Why a workload does not get its device: one deterministic verdict from a snapshot.

`explain.explain(snapshot, "pod/ns/name")` answers for a target, `explain.examine(snapshot)` for everything in it;
`render` turns a verdict into text or JSON. The detectors, one module per boundary, reason about the recorded objects
with our own allocator, selectors and CDI reader; they never ask a cluster.
"""
