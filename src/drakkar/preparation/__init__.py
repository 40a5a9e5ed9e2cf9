"""Preparation: how a node makes allocated devices ready, and the framework on which drivers are written.

A driver supplies a handler; `plugin.PluginServer` speaks kubelet's protocols for it, `claims.ClaimLedger` remembers
over crashes what was promised to whom, on top of the append-only `journal`.
"""
