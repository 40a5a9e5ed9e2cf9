"""One record per claim UID, node and device, with the time and the proof of each boundary."""

from __future__ import annotations

import json
from pathlib import Path

from drakkar.evidence.captures import NodeCapture
from drakkar.evidence.nodes import read_node
from drakkar.evidence.records import BOUNDARIES, claim_records, node_of_claim
from drakkar.evidence.snapshot import LogKey
from tests.diagnosis.world import claim, event, gpu, piece, pod, uid, world


def states(record: object) -> list[str]:
    return [record.boundaries[name].state for name in BOUNDARIES]  # type: ignore[attr-defined]


def test_an_unallocated_claim_has_one_record_without_device() -> None:
    made = claim("c")
    (record,) = claim_records(world(made), made)
    assert record.device is None
    assert states(record) == ["proved", "refuted", "unknown", "unknown"]
    assert record.first_gap == "allocation"


def test_each_device_of_a_claim_has_its_record() -> None:
    made = claim("c", held="n1/gpu-0")
    results = made["status"]["allocation"]["devices"]["results"]
    results.append({**results[0], "device": "gpu-1"})
    snapshot = world(made, piece("n1", gpu("gpu-0")))
    first, second = claim_records(snapshot, made)
    assert [str(r.device) for r in (first, second)] == ["gpu.nvidia.com/n1/gpu-0", "gpu.nvidia.com/n1/gpu-1"]
    assert first.boundaries["inventory"].state == "proved"
    assert second.boundaries["inventory"].text == "generation 1 of pool n1 has no device gpu-1"


def test_an_older_generation_proves_nothing() -> None:
    made = claim("c", held="n1/gpu-0")
    old = piece("n1", gpu("gpu-0"))
    new = {**piece("n1", gpu("gpu-9"), generation=2), "metadata": {"name": "newer", "uid": "x"}}
    (record,) = claim_records(world(old, new, made), made)
    assert record.boundaries["inventory"].text == "generation 2 of pool n1 has no device gpu-0"


def test_the_kubelets_checkpoint_proves_preparation_before_a_container_runs() -> None:
    made = claim("c", held="n1/gpu-0", users=("p",))
    device = {"CDIDeviceIDs": ["k8s.gpu.nvidia.com/claim=x-gpu-0"]}
    held = {"ClaimUID": uid("ResourceClaim", "c"), "DriverState": {"gpu.nvidia.com": {"Devices": [device]}}}
    data = json.dumps({"Data": json.dumps({"ClaimInfoStateList": [held]})})
    nodes = {"n1": NodeCapture("n1", {"dra_manager_state": data})}
    (record,) = claim_records(world(made, pod("p", claim_name="c", on="n1"), nodes=nodes), made)
    assert record.boundaries["preparation"].state == "proved"
    assert "k8s.gpu.nvidia.com/claim=x-gpu-0" in record.boundaries["preparation"].text
    empty = {"n1": NodeCapture("n1", {"dra_manager_state": "{}"})}
    (record,) = claim_records(world(made, pod("p", claim_name="c", on="n1"), nodes=empty), made)
    assert record.boundaries["preparation"].state == "refuted"


def test_a_failed_preparation_is_its_own_proof() -> None:
    made, waiting = claim("c", held="n1/gpu-0", users=("p",)), pod("p", claim_name="c", on="n1")
    events = (event(waiting, "FailedPrepareDynamicResources", "no driver", at="2026-01-01T00:30:00Z"),)
    (record,) = claim_records(world(made, waiting, events=events), made)
    proof = record.boundaries["preparation"]
    assert (proof.state, proof.text, proof.time) == ("refuted", "no driver", "2026-01-01T00:30:00Z")


def test_a_uuid_in_the_log_proves_what_the_container_saw() -> None:
    made, running = claim("c", held="n1/gpu-0", users=("p",)), pod("p", claim_name="c", on="n1", phase="Running")
    log = LogKey("ml", "p", "main")
    (record,) = claim_records(world(made, running, logs={log: "GPU 0: X (UUID: GPU-gpu-0)"}), made)
    assert states(record) == ["proved"] * 4
    (record,) = claim_records(world(made, running, logs={log: "GPU 0: X (UUID: GPU-other)"}), made)
    assert record.boundaries["injection"].state == "unknown"


def test_the_node_is_known_from_pod_allocation_or_slice() -> None:
    made = claim("c", held="n2/gpu-0", users=("p",))
    assert node_of_claim(world(made, pod("p", claim_name="c", on="n1")), made) == "n1"
    assert node_of_claim(world(made), made) == "n2"


def test_a_record_is_plain_json() -> None:
    made = claim("c", held="n1/gpu-0")
    (record,) = claim_records(world(made), made)
    assert json.loads(json.dumps(record.to_dict()))["claimUID"] == uid("ResourceClaim", "c")


def node_files(
    tmp_path: Path, *, nodes_in_container: tuple[str, ...], limitations: tuple[tuple[str, str], ...] = ()
) -> NodeCapture:
    """A node's folders as a kubelet, a driver and a runtime write them."""
    claim_uid = uid("ResourceClaim", "c")
    name = f"k8s.gpu.nvidia.com/claim={claim_uid}-gpu-0"
    device = {"PoolName": "n1", "DeviceName": "gpu-0", "CDIDeviceIDs": [name]}
    held = {"ClaimUID": claim_uid, "DriverState": {"gpu.nvidia.com": {"Devices": [device]}}}
    (tmp_path / "dra_manager_state").write_text(json.dumps({"Data": json.dumps({"ClaimInfoStateList": [held]})}))
    edits = {"deviceNodes": [{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}]}
    spec = {
        "cdiVersion": "0.5.0",
        "kind": "k8s.gpu.nvidia.com/claim",
        "devices": [{"name": f"{claim_uid}-gpu-0", "containerEdits": edits}],
    }
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi" / "claim.json").write_text(json.dumps(spec))
    bundle = tmp_path / "bundles" / "x"
    bundle.mkdir(parents=True)
    devices = [{"path": path, "type": "c", "major": 195, "minor": 0} for path in nodes_in_container]
    config = {"annotations": {"io.kubernetes.pod.uid": uid("Pod", "p")}, "linux": {"devices": devices}}
    (bundle / "config.json").write_text(json.dumps(config))
    if limitations:
        (bundle / "record.json").write_text(json.dumps({"limitations": limitations}))
    return read_node(
        "n1", kubelet_root=tmp_path, cdi_directories=[tmp_path / "cdi", tmp_path / "none"], bundles=tmp_path / "bundles"
    )


def test_a_nodes_own_files_prove_preparation_and_injection(tmp_path: Path) -> None:
    made, running = claim("c", held="n1/gpu-0", users=("p",)), pod("p", claim_name="c", on="n1", phase="Running")
    capture = node_files(tmp_path, nodes_in_container=("/dev/null", "/dev/nvidia0"))
    (record,) = claim_records(world(made, running, nodes={"n1": capture}), made)
    assert states(record) == ["proved"] * 4
    assert "(claim.json)" in record.boundaries["preparation"].text
    assert record.boundaries["injection"].text == "the runtime's configuration has /dev/nvidia0 195:0"


def test_a_stand_in_for_a_device_node_proves_nothing(tmp_path: Path) -> None:
    made, running = claim("c", held="n1/gpu-0", users=("p",)), pod("p", claim_name="c", on="n1", phase="Running")
    capture = node_files(
        tmp_path,
        nodes_in_container=("/dev/nvidia0",),
        limitations=(("root file system", "the host's"), ("device node /dev/nvidia0", "a regular file")),
    )
    (record,) = claim_records(world(made, running, nodes={"n1": capture}), made)
    proof = record.boundaries["injection"]
    assert proof.state == "unknown"
    assert proof.text.endswith("but the runtime made device node /dev/nvidia0: a regular file")


def test_a_configuration_without_the_device_refutes_injection(tmp_path: Path) -> None:
    made, running = claim("c", held="n1/gpu-0", users=("p",)), pod("p", claim_name="c", on="n1", phase="Running")
    capture = node_files(tmp_path, nodes_in_container=())
    (record,) = claim_records(world(made, running, nodes={"n1": capture}), made)
    assert record.boundaries["injection"].text == "the runtime's configuration lacks /dev/nvidia0"
    assert record.first_gap == "injection"


def test_a_lost_cdi_file_refutes_preparation(tmp_path: Path) -> None:
    made, waiting = claim("c", held="n1/gpu-0", users=("p",)), pod("p", claim_name="c", on="n1")
    whole = node_files(tmp_path, nodes_in_container=())
    files = {**whole.files, "cdi/claim.json": whole.files["cdi/claim.json"].replace("gpu-0", "gpu-7")}
    (record,) = claim_records(world(made, waiting, nodes={"n1": NodeCapture("n1", files)}), made)
    assert record.boundaries["preparation"].state == "refuted"
    assert "no CDI file defines" in record.boundaries["preparation"].text


def test_a_node_without_files_shows_nothing(tmp_path: Path) -> None:
    assert read_node("n1", kubelet_root=tmp_path / "no", cdi_directories=[], bundles=tmp_path / "no").files == {}
