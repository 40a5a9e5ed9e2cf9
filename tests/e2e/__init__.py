"""The GPU driver as a process on a real Kubernetes: kubelet, scheduler, containerd; pods are the proof."""
