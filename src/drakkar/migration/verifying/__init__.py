"""The proof of a migration: old and new form side by side, each on an embedded copy of the cluster.

The old form runs on nodes whose device plugin counts devices, the new one on the same nodes with the devices published
in slices. Scheduler, controllers, quota and admission are the embedded cluster's; containers do not run, their pods
only become ready. Compared are what every pod template can reach, what every quota admits, and whether rollouts end.
"""
