"""Writes the bill of materials (CycloneDX 1.6, JSON) of the Python it runs in; uses the standard library only.

    python sbom.py > sbom.cdx.json

The image's build runs it after everything is installed, so that it lists what is there and not what was asked for.
"""

from __future__ import annotations

import importlib
import json
import platform
import sys
from importlib.metadata import Distribution, distributions
from typing import Any


def bill() -> dict[str, Any]:
    """The bill of this interpreter: drakkar, the interpreter, and every installed distribution."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _drakkar()},
        "components": [_interpreter(), *sorted(map(_component, distributions()), key=lambda one: one["purl"])],
    }


def _drakkar() -> dict[str, Any]:
    version = importlib.import_module("drakkar").__version__
    return {
        "type": "application",
        "name": "drakkar",
        "version": version,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }


def _interpreter() -> dict[str, Any]:
    version = platform.python_version()
    return {"type": "platform", "name": "python", "version": version, "purl": f"pkg:generic/python@{version}"}


def _component(distribution: Distribution) -> dict[str, Any]:
    name, version = distribution.metadata["Name"], distribution.version
    component: dict[str, Any] = {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name.lower()}@{version}",
    }
    expression = distribution.metadata.get("License-Expression")
    words = distribution.metadata.get("License") or ""
    if expression:
        component["licenses"] = [{"expression": expression}]
    elif words and "\n" not in words:
        component["licenses"] = [{"license": {"name": words}}]
    return component


if __name__ == "__main__":
    json.dump(bill(), sys.stdout, indent=1)
    sys.stdout.write("\n")
