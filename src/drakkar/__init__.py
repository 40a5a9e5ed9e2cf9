"""Drakkar: the whole GPU device contract on Kubernetes, in Python.

The sub-packages are the rooms of the system; ``docs/architecture.md`` has the map.
"""

__version__ = "0.1.0"
