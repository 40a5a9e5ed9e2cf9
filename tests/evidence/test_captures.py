"""Files captured on a node are read forgivingly; half a file gives what it still says."""

from __future__ import annotations

import json

from drakkar.evidence.captures import DeviceFile, MigDevice, NodeCapture

SMI = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)
  MIG 3g.20gb     Device  0: (UUID: MIG-1)
  MIG 3g.20gb     Device  1: (UUID: MIG-2)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-2)
"""


def capture(**files: str) -> NodeCapture:
    return NodeCapture("n1", {name.replace("__", "/").replace("_dot_", "."): text for name, text in files.items()})


def test_nvidia_smi_lists_gpus_and_mig_devices() -> None:
    gpus = NodeCapture("n1", {"nvidia-smi-L.txt": SMI}).gpus
    assert gpus is not None
    assert [(gpu.number, gpu.uuid, len(gpu.mig_devices)) for gpu in gpus] == [(0, "GPU-1", 2), (1, "GPU-2", 0)]
    assert gpus[0].mig_devices[0] == MigDevice("3g.20gb", "MIG-1")


def test_no_devices_is_not_no_capture() -> None:
    assert NodeCapture("n1", {}).gpus is None
    assert NodeCapture("n1", {"nvidia-smi-L.txt": "No devices found.\n"}).gpus == ()
    assert NodeCapture("n1", {"nvidia-smi-L.txt": "Failed to initialize NVML\n"}).gpus is None


def test_device_listings_have_numbers() -> None:
    text = (
        "$ ls -l /dev/nvidia*\n"
        "crw-rw-rw- 1 root root 195,   0 Oct 20 06:11 /dev/nvidia0\n"
        "-rw-r--r-- 1 root root 3906 Jul 21 09:31 /var/run/cdi/a.yaml\n"
        "total 0\n"
    )
    assert NodeCapture("n1", {"dev.txt": text}).device_files == (
        DeviceFile("/dev/nvidia0", "c", 195, 0),
        DeviceFile("/var/run/cdi/a.yaml", "-", None, None),
    )


def test_the_kubelets_checkpoint_is_read_through_its_wrapping() -> None:
    device = {"PoolName": "n1", "DeviceName": "gpu-0", "CDIDeviceIDs": ["v/c=1"]}
    state = {
        "ClaimUID": "u",
        "ClaimName": "c",
        "Namespace": "ml",
        "PodUIDs": {"p": {}},
        "DriverState": {"gpu.nvidia.com": {"Devices": [device]}},
    }
    data = json.dumps({"ClaimInfoStateList": [state]})
    (claim,) = NodeCapture("n1", {"dra_manager_state": json.dumps({"Data": data, "Checksum": 1})}).prepared_claims or ()
    assert (claim.uid, claim.pods, claim.cdi_devices) == ("u", ("p",), {"gpu.nvidia.com": ("v/c=1",)})


def test_half_files_give_nothing_instead_of_failing() -> None:
    broken = NodeCapture(
        "n1",
        {
            "dra_manager_state": '{"Data": "{',
            "checkpoint.json": "[",
            "containerd.toml": "= =",
            "crictl-info.json": "[]",
            "nvidia-smi-q.txt": "Driver",
        },
    )
    assert broken.prepared_claims == ()
    assert broken.driver_claims == {}
    assert broken.containerd is None
    assert broken.crictl_info is None
    assert broken.driver_version == ""
