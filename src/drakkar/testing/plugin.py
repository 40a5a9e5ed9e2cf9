"""The pytest fixtures: `cluster`, `gpu_node`, `kubectl` and `fault`.

Each test that asks for them has a cluster of its own: it starts in well under a second, and no test can see what
another has left behind. Nothing here may import more than pytest, see the package.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from drakkar.testing.clusters import EmbeddedCluster, Fault, GpuNode
    from drakkar.testing.kubectl import Kubectl

__all__ = ["cluster", "fault", "gpu_node", "kubectl", "pytest_addoption"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which kubectl, how containers run."""
    group = parser.getgroup("drakkar", "a Kubernetes cluster with simulated GPUs")
    group.addoption("--drakkar-runtime", default=None, help="how containers run: process, runc or auto")
    group.addoption("--drakkar-kubectl", default=None, help="the kubectl to use, instead of the one on PATH")
    parser.addini("drakkar_runtime", "how containers run: process, runc or auto", default="process")
    parser.addini("drakkar_kubectl", "the kubectl to use, instead of the one on PATH", default="")


@pytest.fixture
def cluster(pytestconfig: pytest.Config) -> Iterator[EmbeddedCluster]:
    """A running cluster without nodes, for this test alone; see `drakkar.testing.clusters.EmbeddedCluster`."""
    from drakkar.testing.clusters import EmbeddedCluster

    with EmbeddedCluster(runtime=_setting(pytestconfig, "runtime")) as running:
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


def _setting(config: pytest.Config, name: str) -> str:
    given = config.getoption(f"drakkar_{name}")
    return str(given if given is not None else config.getini(f"drakkar_{name}"))
