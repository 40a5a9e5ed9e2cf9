POD = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: one}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  containers:
  - {name: main, image: busybox, command: [sh, -c, "nvidia-smi -L; sleep 60"], resources: {claims: [{name: gpu}]}}
  resourceClaims: [{name: gpu, resourceClaimName: one}]
"""


def test_the_pod_sees_its_gpu(gpu_node, kubectl):
    gpu_node("t4")
    kubectl.apply(POD)
    kubectl.until("logs", "train", matches="Tesla T4")


def test_it_waits_without_a_gpu(cluster, kubectl):
    kubectl.apply(POD)
    kubectl.until("get", "pods", matches="Pending")
    assert not cluster.explain("pod/train").healthy


def test_a_lost_gpu_is_tainted(gpu_node, kubectl, fault):
    fault("gpu-lost", gpu_node("t4"), gpu=0)
    kubectl.until("get", "resourceslices", "-o", "yaml", matches="gpu-lost")
