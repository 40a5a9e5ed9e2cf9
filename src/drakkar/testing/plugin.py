"""The pytest fixtures `cluster`, `gpu_node`, `kubectl` and `fault`, and the mark `drakkar`, which says how they run.

Each test that asks for them has a cluster of its own: it starts in well under a second, and no test can see what
another has left behind. Nothing here may import more than pytest, see the package.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from drakkar.testing.clusters import EmbeddedCluster, Fault, GpuNode
    from drakkar.testing.kubectl import Kubectl

__all__ = ["cluster", "fault", "gpu_node", "kubectl", "pytest_addoption", "pytest_configure"]

_MARK = "drakkar(speed=None, seed=None, runtime=None): how the cluster of this test runs; speed and seed simulate time"
_KNOWN = frozenset(("speed", "seed", "runtime"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which kubectl, how containers run."""
    group = parser.getgroup("drakkar", "a Kubernetes cluster with simulated GPUs")
    group.addoption("--drakkar-runtime", default=None, help="how containers run: process, runc, simulated or auto")
    group.addoption("--drakkar-kubectl", default=None, help="the kubectl to use, instead of the one on PATH")
    parser.addini("drakkar_runtime", "how containers run: process, runc, simulated or auto", default="")
    parser.addini("drakkar_kubectl", "the kubectl to use, instead of the one on PATH", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", _MARK)


@pytest.fixture
def cluster(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Iterator[EmbeddedCluster]:
    """A running cluster without nodes, for this test alone; see `drakkar.testing.clusters.EmbeddedCluster`.

    ``@pytest.mark.drakkar(speed=0)`` simulates its time: it stands still but for ``cluster.advance("24h")``.
    """
    from drakkar.testing.clusters import EmbeddedCluster

    asked = _asked(request)
    asked.setdefault("runtime", _setting(pytestconfig, "runtime"))
    with EmbeddedCluster(**asked) as running:
        yield running


@pytest.fixture
def gpu_node(cluster: EmbeddedCluster) -> GpuNode:
    """Adds a simulated machine: ``gpu_node("dgx-h100")`` is the node's name once its devices are published."""
    return cluster.add_node


@pytest.fixture
def fault(cluster: EmbeddedCluster) -> Fault:
    """Breaks a node: ``fault("gpu-lost", node, gpu=3)``; `drakkar fault` lists the names."""
    return cluster.fault


@pytest.fixture
def kubectl(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Kubectl:
    """A real kubectl that talks to the cluster: ``kubectl("get", "pods").stdout``, ``kubectl.until(...)``."""
    from drakkar.errors import DrakkarError
    from drakkar.testing.kubectl import Kubectl, find

    try:
        path = find(_setting(pytestconfig, "kubectl"))
    except DrakkarError as error:
        pytest.fail(f"{error.message}; {error.next_step}", pytrace=False)
    running: EmbeddedCluster = request.getfixturevalue("cluster")  # only now: it would start for nothing
    return Kubectl(path, running.environment)


def _asked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the marks of a test say; the nearest one wins."""
    found: dict[str, Any] = {}
    for mark in request.node.iter_markers("drakkar"):
        unknown = sorted(mark.kwargs.keys() - _KNOWN)
        if mark.args or unknown:
            wrong = ", ".join(unknown) or "what has no name"
            pytest.fail(f"the mark drakkar does not know {wrong}; it knows {', '.join(sorted(_KNOWN))}", pytrace=False)
        found = {**{name: value for name, value in mark.kwargs.items() if value is not None}, **found}
    return found


def _setting(config: pytest.Config, name: str) -> str:
    given = config.getoption(f"drakkar_{name}")
    return str(given if given is not None else config.getini(f"drakkar_{name}"))
