"""What would happen: would these manifests fit, what must go for them, does this rollout end, how many more fit.

Every answer is a trial on a copy of the cluster's state, made of a snapshot: the scheduler's own functions
(`drakkar.scheduling`) place the pods and the allocator chooses the devices, exactly as they would in the cluster.
Nothing here asks a cluster, and nothing is ever written to one.
"""
