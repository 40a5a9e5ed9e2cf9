"""Patches of stored objects: JSON patch (RFC 6902), merge patch (RFC 7386) and Kubernetes' strategic merge patch.

`patch` does what a PATCH handler does with a body: read it, apply it to the versioned object, press the result into
its type and report unknown fields. Server-side apply is `drakkar.cluster.machinery.apply`.
"""

from drakkar.cluster.machinery.patching.bodies import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, patch
from drakkar.cluster.machinery.patching.errors import PatchError
from drakkar.cluster.machinery.patching.json_patch import json_patch
from drakkar.cluster.machinery.patching.merge_patch import merge_patch
from drakkar.cluster.machinery.patching.strategic import strategic_merge_patch

__all__ = [
    "JSON_PATCH",
    "MERGE_PATCH",
    "STRATEGIC_PATCH",
    "PatchError",
    "json_patch",
    "merge_patch",
    "patch",
    "strategic_merge_patch",
]
