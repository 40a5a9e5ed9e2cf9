"""The pytest plugin, used as its users do: a test file, a run, its outcome."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from drakkar.errors import DrakkarError
from drakkar.testing.kubectl import Kubectl, KubectlFailed, find
from tests.conftest import kubectl as fetched

pytest_plugins = ["pytester"]

_POD = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: one}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  restartPolicy: Never
  containers:
  - {name: main, image: busybox, command: [sh, -c, "nvidia-smi -L; sleep 100"], resources: {claims: [{name: gpu}]}}
  resourceClaims: [{name: gpu, resourceClaimName: one}]
"""


@pytest.fixture(scope="module")
def kubectl_path() -> str:
    """Looked up before `pytester` gives each test a home of its own."""
    return fetched(37)


def _run(pytester: pytest.Pytester, text: str, *words: str) -> pytest.RunResult:
    pytester.makepyfile(textwrap.dedent(text))
    return pytester.runpytest_subprocess("-p", "drakkar.testing.plugin", "-p", "no:cacheprovider", *words)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_users_tests_run_a_pod_on_a_gpu_break_it_and_get_sentences_for_mistakes(
    kubectl_path: str, pytester: pytest.Pytester
) -> None:
    result = _run(
        pytester,
        f'''
        import pytest
        from drakkar.errors import DrakkarError

        POD = """{textwrap.indent(_POD, " " * 8).strip()}"""

        def test_gpu(cluster, gpu_node, kubectl, fault):
            node = gpu_node("t4")
            assert cluster.nodes == [node] == ["t4-0"]
            kubectl.apply(POD.replace("\\n        ", "\\n"))
            kubectl.until("logs", "train", matches="GPU 0: Tesla T4 .UUID: GPU-")
            assert cluster.explain("pod/train").healthy
            assert fault("gpu-lost", node, gpu=0) == "GPU 0 of t4-0 fell off the bus"
            kubectl.until("get", "resourceslices", "-o", "yaml", matches="gpu-lost")

        def test_nothing_is_left_of_it_and_mistakes_are_sentences(cluster, kubectl, gpu_node, fault):
            assert cluster.nodes == []
            assert kubectl("get", "pods,nodes,resourceclaims,resourceslices", "-A", "-o", "name").stdout == ""
            with pytest.raises(DrakkarError, match="did you mean 't4'"):
                gpu_node("t44")
            with pytest.raises(DrakkarError, match="there is no node 'nope'"):
                fault("gpu-lost", "nope", gpu=0)
            node = gpu_node("t4", "mine")
            with pytest.raises(DrakkarError, match="there is a node 'mine' already"):
                gpu_node("t4", node)
            with pytest.raises(DrakkarError, match="unknown fault 'gpu-melted'"):
                fault("gpu-melted", node)
        ''',
        "--drakkar-kubectl",
        kubectl_path,
    )
    result.assert_outcomes(passed=2)


def test_a_missing_kubectl_is_named_before_anything_runs(pytester: pytest.Pytester) -> None:
    result = _run(pytester, "def test_it(kubectl): pass", "--drakkar-kubectl", "/nowhere/kubectl")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*there is no /nowhere/kubectl; install kubectl 1.34 to 1.37*"])


def test_the_plugin_costs_others_nothing() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import drakkar.testing.plugin; "
        "print(sorted({name for name in set(sys.modules) - before if not name.startswith('_')}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "['drakkar', 'drakkar.testing', 'drakkar.testing.plugin']"


def test_kubectl_reports_what_it_ran_and_what_it_printed() -> None:
    echo = Kubectl(find("echo"), {})
    assert echo("get", "pods").stdout == "get pods\n"
    with pytest.raises(KubectlFailed, match=r"did not print 'Running' within 0 s; last:\nget pods"):
        echo.until("get", "pods", matches="Running", seconds=0)
    with pytest.raises(KubectlFailed, match="kubectl get pods failed with 1"):
        Kubectl(find("false"), {})("get", "pods")
    with pytest.raises(DrakkarError, match="there is no kubectl-that-is-not"):
        find("kubectl-that-is-not")
