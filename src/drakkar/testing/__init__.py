"""A cluster with GPUs as pytest fixtures: ``pip install drakkar[pytest]``, then ask for `cluster`, `kubectl` and so on.

The plugin itself (`drakkar.testing.plugin`) is loaded by every pytest run of an environment that has Drakkar, so it
imports nothing but pytest; the cluster's modules are loaded when a test asks for a fixture.
"""
