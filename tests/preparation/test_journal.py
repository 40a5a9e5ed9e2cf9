"""A journal forgets nothing that was acknowledged, and never stops a driver from starting."""

import asyncio
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drakkar.api.identities import DeviceKey
from drakkar.preparation.claims import PREPARED, PREPARING, ClaimLedger, DeviceBusyError
from drakkar.preparation.journal import Journal, JournalError
from drakkar.preparation.values import ClaimRef, ClaimUID, PreparedDevice

GPU = [DeviceKey("gpu.example.com", "node-1", f"gpu-{index}") for index in range(4)]


def claim(name: str) -> ClaimRef:
    return ClaimRef(ClaimUID(f"uid-{name}"), name, "team-a")


def written(path: Path, count: int) -> bytes:
    async def scenario() -> None:
        journal = Journal(path, boot_id="b")
        for number in range(count):
            await journal.append({"n": number})
        journal.close()

    asyncio.run(scenario())
    return path.read_bytes()


def test_records_come_back_in_order(tmp_path: Path) -> None:
    written(tmp_path / "j", 5)
    journal = Journal(tmp_path / "j", boot_id="b")
    assert [record["n"] for record in journal.records] == [0, 1, 2, 3, 4]
    assert journal.damage is None and journal.same_boot


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, 400), garbage=st.binary(max_size=40))
def test_a_tail_cut_anywhere_keeps_every_whole_record(
    tmp_path_factory: pytest.TempPathFactory, cut: int, garbage: bytes
) -> None:
    path = tmp_path_factory.mktemp("j") / "journal"
    content = written(path, 6)
    kept = content[: max(0, len(content) - cut)]
    path.write_bytes(kept + garbage)
    journal = Journal(path, boot_id="b")
    whole = max(0, kept.count(b"\n") - 1)
    assert [record["n"] for record in journal.records][:whole] == list(range(whole))
    again = Journal(path, boot_id="b")
    assert again.damage is None and again.records == journal.records


def test_damage_in_the_middle_sets_the_file_aside_and_keeps_what_is_whole(tmp_path: Path) -> None:
    content = written(tmp_path / "j", 5)
    lines = content.splitlines(keepends=True)
    lines[3] = b'00000000 {"n":2}\n'
    (tmp_path / "j").write_bytes(b"".join(lines))
    journal = Journal(tmp_path / "j", boot_id="b")
    assert [record["n"] for record in journal.records] == [0, 1, 3, 4]
    assert journal.damage is not None and journal.damage.kept_as is not None
    assert journal.damage.kept_as.read_bytes() == b"".join(lines)


def test_a_newer_version_is_refused_with_the_way_out(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", boot_id="b")
    journal.compact([])
    from drakkar.preparation.journal import _line

    (tmp_path / "j").write_bytes(_line({"journal": 2, "bootID": "b"}))
    with pytest.raises(JournalError, match="version 2") as caught:
        Journal(tmp_path / "j", boot_id="b")
    assert caught.value.next_step


def test_many_appends_share_a_barrier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    calls: list[int] = []
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda file: (calls.append(file), real(file))[1])

    async def scenario() -> None:
        journal = Journal(tmp_path / "j", boot_id="b")

        async def one(number: int) -> None:
            await journal.append({"n": number})

        await asyncio.gather(*map(one, range(64)))

    asyncio.run(scenario())
    assert 1 <= len(calls) <= 3


def test_a_file_that_is_replaced_during_a_barrier_has_barriers_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    calls: list[int] = []
    real = os.fdatasync

    def counted(file: int) -> None:
        time.sleep(0.05)  # slow: it runs in a thread
        calls.append(file)
        real(file)

    async def scenario() -> None:
        journal = Journal(tmp_path / "j", boot_id="b")
        monkeypatch.setattr(os, "fdatasync", counted)
        for number in range(40):
            await journal.append({"n": number, "pad": "x" * 100})
        barrier = asyncio.ensure_future(journal.append({"n": 40}))
        await asyncio.sleep(0.02)
        journal.compact([])
        await barrier
        before = len(calls)
        await journal.append({"n": 41})
        assert len(calls) == before + 1

    asyncio.run(scenario())


def test_a_claim_goes_from_preparing_to_prepared_to_gone_over_restarts(tmp_path: Path) -> None:
    async def scenario() -> None:
        ledger = ClaimLedger(tmp_path / "j", boot_id="b")
        await ledger.begin(claim("a"), GPU[:2], detail={"k": 1})
        ledger = ClaimLedger(tmp_path / "j", boot_id="b")
        assert ledger.claims[claim("a").uid].state == PREPARING
        device = PreparedDevice(("gpu",), "node-1", "gpu-0", ("x/y=z",), None)
        await ledger.complete(claim("a").uid, [device])
        ledger = ClaimLedger(tmp_path / "j", boot_id="b")
        held = ledger.claims[claim("a").uid]
        assert (held.state, held.devices, held.prepared, held.detail) == (PREPARED, tuple(GPU[:2]), (device,), {"k": 1})
        await ledger.release(claim("a").uid)
        assert not ClaimLedger(tmp_path / "j", boot_id="b").claims

    asyncio.run(scenario())


def test_no_device_is_held_twice_unless_both_share_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        ledger = ClaimLedger(tmp_path / "j", boot_id="b")
        first = ledger.begin(claim("a"), [GPU[0]])
        for name in "bc":
            with pytest.raises(DeviceBusyError, match="is held by claim team-a/a"):
                ledger.begin(claim(name), [GPU[0]])  # before the first one's intent is durable
        assert (await first).claim == claim("a")
        await ledger.begin(claim("d"), [GPU[1]], shared=[GPU[1]])
        await ledger.begin(claim("e"), [GPU[1]], shared=[GPU[1]])
        with pytest.raises(DeviceBusyError, match="is held by claim team-a/d"):
            await ledger.begin(claim("f"), [GPU[1]])
        ledger = ClaimLedger(tmp_path / "j", boot_id="b")
        assert [held.claim.name for held in ledger.holders(GPU[1])] == ["d", "e"]

    asyncio.run(scenario())


def test_an_intent_that_cannot_be_made_durable_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    async def scenario() -> None:
        ledger = ClaimLedger(tmp_path / "j", boot_id="b")
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", broken)
            with pytest.raises(JournalError, match="Input/output error"):
                await ledger.begin(claim("a"), [GPU[0]])
        assert not ledger.claims and not ledger.holders(GPU[0])
        await ledger.begin(claim("a"), [GPU[1]])
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", broken)
            with pytest.raises(JournalError, match="Input/output error"):
                await ledger.begin(claim("a"), [GPU[0]])
        assert ledger.claims[claim("a").uid].devices == (GPU[1],) and not ledger.holders(GPU[0])
        ledger.close()
        with pytest.raises(JournalError, match="closed"):
            ledger.begin(claim("b"), [GPU[0]])
        assert list(ledger.claims) == [claim("a").uid]

    asyncio.run(scenario())


def test_a_reboot_forgets_what_was_prepared_and_says_what(tmp_path: Path) -> None:
    async def scenario() -> None:
        ledger = ClaimLedger(tmp_path / "j", boot_id="first")
        await ledger.begin(claim("a"), GPU[:1])
        ledger = ClaimLedger(tmp_path / "j", boot_id="second")
        assert not ledger.claims
        assert [held.claim.name for held in ledger.forgotten] == ["a"]

    asyncio.run(scenario())


def test_the_file_stays_small_however_often_claims_come_and_go(tmp_path: Path) -> None:
    async def scenario() -> None:
        ledger = ClaimLedger(tmp_path / "j", boot_id="b")
        for number in range(1500):
            await ledger.begin(claim(f"c{number}"), [GPU[0]], detail={"pad": "x" * 200})
            await ledger.release(claim(f"c{number}").uid)
        assert (tmp_path / "j").stat().st_size < 300_000

    asyncio.run(scenario())
