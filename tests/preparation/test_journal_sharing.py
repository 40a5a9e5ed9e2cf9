"""Two instances of one driver share a journal during a rolling update, one at a time."""

import asyncio
from pathlib import Path

from drakkar.api.identities import DeviceKey
from drakkar.preparation.claims import ClaimLedger
from drakkar.preparation.values import ClaimRef, ClaimUID, PreparedDevice

GPU = DeviceKey("gpu.example.com", "n1", "gpu-0")


def claim(name: str) -> ClaimRef:
    return ClaimRef(ClaimUID(f"uid-{name}"), name, "a")


def ledgers(folder: Path) -> tuple[ClaimLedger, ClaimLedger]:
    path = folder / "claims.journal"
    return ClaimLedger(path, boot_id="b"), ClaimLedger(path, boot_id="b")


def test_each_sees_what_the_other_wrote(tmp_path: Path) -> None:
    async def story() -> None:
        one, two = ledgers(tmp_path)
        await one.begin(claim("x"), [GPU])
        await one.complete(claim("x").uid, [PreparedDevice(("r",), "n1", "gpu-0", ("k=v",))])
        assert not two.claims
        two.catch_up()
        assert two.claims == one.claims
        assert [held.claim for held in two.holders(GPU)] == [claim("x")]
        await two.release(claim("x").uid)
        one.catch_up()
        assert (one.claims, one.holders(GPU)) == ({}, [])
        one.catch_up()
        assert not one.claims

    asyncio.run(story())


def test_a_compacted_file_is_read_again(tmp_path: Path) -> None:
    async def story() -> None:
        one, two = ledgers(tmp_path)
        await one.begin(claim("x"), [GPU])
        two.catch_up()
        await one.release(claim("x").uid)
        one._journal.compact([])
        two.catch_up()
        assert not two.claims
        await two.begin(claim("y"), [GPU])
        one.catch_up()
        assert list(one.claims) == [claim("y").uid]

    asyncio.run(story())


def test_half_a_record_of_a_killed_writer_is_cut(tmp_path: Path) -> None:
    async def story() -> None:
        one, two = ledgers(tmp_path)
        await one.begin(claim("x"), [GPU])
        with (tmp_path / "claims.journal").open("ab") as file:
            file.write(b'01234567 {"op":"prep')
        two.catch_up()
        assert list(two.claims) == [claim("x").uid]
        await two.release(claim("x").uid)
        three = ClaimLedger(tmp_path / "claims.journal", boot_id="b")
        assert (three.damage, three.claims) == (None, {})

    asyncio.run(story())
