"""An autoscaler for the embedded cluster: node groups that grow for pods that wait and shrink when nobody needs them.

It behaves as Kubernetes' cluster-autoscaler 1.35 does with Dynamic Resource Allocation: the same questions in the same
order, the same events and the same status ConfigMap. What decides (`scale_up`, `scale_down`, `registry`, `expanders`,
`utilization`, `drain_rules`) is pure and takes a `TrialCluster`; `autoscaler` is the loop around it, `provider` the
cloud it asks for machines.
"""
