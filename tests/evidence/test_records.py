"""One record per claim UID, node and device, with the time and the proof of each boundary."""

from __future__ import annotations

import json

from drakkar.evidence.captures import NodeCapture
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
