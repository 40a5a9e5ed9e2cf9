"""Taking a node over from NVIDIA's driver, and giving it back, with its own files."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from gpu_node import DRIVER, GpuNode, nodes_of, running

from drakkar.drivers.gpu import predecessor as nvidia
from drakkar.drivers.gpu import process
from drakkar.drivers.gpu.predecessor import NvidiaCheckpoint
from drakkar.errors import DrakkarError
from drakkar.kube.transport import ApiResponse
from drakkar.preparation.values import ClaimUID
from tests.checkpoints import checkpoint, entry


class Node(GpuNode):
    """A node on which NVIDIA's driver was."""

    def left(self, document: dict[str, Any] | bytes) -> Path:
        file = self.folder / "p" / DRIVER / "checkpoint.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(document if isinstance(document, bytes) else nvidia.encoded(document))
        return file

    def cdi_file(self, uid: str) -> Path:
        self.cdi.mkdir(exist_ok=True)
        file = self.cdi / f"k8s.{DRIVER}-claim_{uid}.yaml"
        file.write_text("cdiVersion: 0.5.0\n")
        return file

    @property
    def paths(self) -> process.Paths:
        return process.Paths(self.folder / "p", self.folder / "r", self.cdi, self.folder / "state")


def test_the_checksum_is_that_of_kubernetes() -> None:
    # made with hash/fnv and go-spew 1.1.1 as k8s.io/kubernetes/pkg/kubelet/checkpointmanager/checksum uses them
    assert nvidia.checksum(b'{"checksum":0}') == 4166374854


@pytest.mark.parametrize("versions", ["12", "1"])
def test_prepared_claims_run_on_under_our_journal(tmp_path: Path, versions: str) -> None:
    async def main() -> None:
        node = Node(tmp_path, adopt=True)
        node.build()
        uid = node.claim("c", "gpu-3", pods=("p",))
        node.left(checkpoint(node.machine.boot_id, {uid: entry(uid, "gpu-3")}, versions=versions))
        node.cdi_file(uid)
        async with running(node):
            assert [held.devices[0].device for held in node.driver.claims.values()] == ["gpu-3"]
            assert node.files() == [f"k8s.{DRIVER}-claim_{uid}.json"]
            assert nodes_of(node.spec(uid)) == ["/dev/nvidia3"]
            answer = await node.prepare("c", uid)  # the kubelet asks again after its restart
            assert list(answer.devices[0].cdi_device_ids) == [f"k8s.{DRIVER}/claim={uid}-gpu-3"]
            other = node.claim("other", "gpu-3")
            refused = (await node.prepare("other", other)).error
            assert "already allocated to different claim" in refused
            assert not (await node.unprepare("c", uid)).error
        async with running(node):  # the checkpoint still names it; it has been dealt with
            assert not node.driver.claims

    asyncio.run(main())


def test_only_what_the_api_confirms_is_taken_over(tmp_path: Path) -> None:
    async def main() -> None:
        node = Node(tmp_path, adopt=True)
        node.build()
        good, moved, half = node.claim("good", "gpu-0"), node.claim("moved", "gpu-5"), node.claim("half", "gpu-2")
        claims = {
            good: entry(good, "gpu-0", name="good"),
            moved: entry(moved, "gpu-1", name="moved"),
            half: entry(half, "gpu-2", name="half", state="PrepareStarted"),
            "gone": entry("gone", "gpu-7", name="gone"),
            "replaced": entry("replaced", "gpu-6", name="good"),
        }
        node.left(checkpoint(node.machine.boot_id, claims))
        for uid in claims:
            node.cdi_file(uid)
        async with running(node):
            await asyncio.sleep(0.05)
            assert set(node.driver.claims) == {good}
            assert node.files() == [f"k8s.{DRIVER}-claim_{good}.json"]
            events = {obj["reason"]: obj["message"] for obj in node.api.under("/api/v1/namespaces/default/events")}
        assert "prepared are gpu-1, allocated gpu-5 here" in events["ClaimNotTakenOver"]
        assert "team-a/half" in events["PrepareTakenBack"]
        assert events["ClaimsTakenOver"].startswith("1 prepared claims")

    asyncio.run(main())


@pytest.mark.parametrize(("versions", "taken"), [("12", True), ("1", False)])
def test_claims_are_listed_only_where_the_checkpoint_has_no_names(tmp_path: Path, versions: str, taken: bool) -> None:
    """The chart's driver may read a claim that it knows, but not list all of them."""

    async def main() -> None:
        node = Node(tmp_path, adopt=True)
        node.build()
        uid = node.claim("c", "gpu-3", pods=("p",))
        node.left(checkpoint(node.machine.boot_id, {uid: entry(uid, "gpu-3")}, versions=versions))

        told = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "resourceclaims is forbidden"}
        node.api.fail["GET /apis/resource.k8s.io/v1/resourceclaims"] = ApiResponse(403, {}, told)
        if taken:
            async with running(node):
                assert set(node.driver.claims) == {uid}
            return
        with pytest.raises(DrakkarError, match="may not list them") as caught:
            await node.driver.start()
        assert "driver.adopt=true" in caught.value.next_step
        await node.driver.stop()

    asyncio.run(main())


def test_a_checkpoint_of_another_boot_is_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path, adopt=True)
    node.build()
    node.left(checkpoint("another boot", {"u": entry("u", "gpu-0")}))
    assert NvidiaCheckpoint(tmp_path / "p" / DRIVER, node.machine.boot_id).claims() == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x00\xff", "is no JSON"), (b"{", "is no JSON"), (b"[" * 100_000, "is no JSON"), (b"[]", "neither version"),
        (b'{"v2": {"preparedClaims": []}}', "v2.preparedClaims is no object"),
        (b'{"v2": {"preparedClaims": {"u": 7}}}', "claim u is not described"),
        (b'{"v2": {"preparedClaims": {"u": {"preparedDevices": [{"devices": [{"gpu": {}}]}]}}}}', "claim u is not"),
    ],
)  # fmt: skip
def test_damaged_checkpoints_are_clear_errors(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "checkpoint.json").write_bytes(content)
    with pytest.raises(DrakkarError, match=message) as caught:
        NvidiaCheckpoint(tmp_path, "boot").claims()
    assert "drain the node" in caught.value.next_step


def test_handing_back_leaves_held_claims_byte_for_byte(tmp_path: Path) -> None:
    node = Node(tmp_path, adopt=True)
    node.build()
    kept, released = node.claim("kept", "gpu-0", pods=("p",)), node.claim("released", "gpu-1")
    claims = {
        kept: entry(kept, "gpu-0", name="kept", info="<a&b>\u2028 ü"),
        released: entry(released, "gpu-1", name="released"),
    }
    file = node.left(checkpoint(node.machine.boot_id, claims))
    node.cdi_file(kept)
    node.cdi_file(released)

    async def while_we_serve() -> str:
        async with running(node):
            assert not (await node.unprepare("released", released)).error
            ours = node.claim("ours", "gpu-6", pods=("q",))
            assert not (await node.prepare("ours", ours)).error
            with pytest.raises(DrakkarError, match="another plugin"):
                await asyncio.to_thread(process.hand_back, node.machine, paths=node.paths)
            return ours

    ours = asyncio.run(while_we_serve())
    held = process.hand_back(node.machine, paths=node.paths)
    assert sorted(one.claim.name for one in held) == ["kept", "ours"]
    document = json.loads(file.read_bytes())
    assert nvidia.verified(document)
    assert nvidia.encoded(document["v2"]["preparedClaims"]) == nvidia.encoded({kept: claims[kept]})
    assert list(document["v2"]) == ["checksum", "preparedClaims", "nodeBootID"]
    assert node.files() == sorted(f"k8s.{DRIVER}-claim_{uid}.yaml" for uid in (kept, ours))

    async def and_again() -> None:
        async with running(node):
            assert set(node.driver.claims) == {ClaimUID(kept)}

    asyncio.run(and_again())


def test_a_checkpoint_that_its_own_driver_would_refuse_is_not_written_again(tmp_path: Path) -> None:
    document = checkpoint("b", {"u": entry("u", "gpu-0")})
    document["v2"]["checksum"] += 1
    file = tmp_path / "checkpoint.json"
    file.write_bytes(nvidia.encoded(document))
    before = file.read_bytes()
    with pytest.raises(DrakkarError, match="does not match its checksum"):
        NvidiaCheckpoint(tmp_path, "b").hand_back({ClaimUID("u")})
    assert file.read_bytes() == before
    assert [one.uid for one in NvidiaCheckpoint(tmp_path, "b").claims()] == ["u"]
