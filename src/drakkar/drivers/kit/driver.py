"""A driver on a node: slices published, claims prepared over the kubelet's socket, and nothing lost by being killed.

One prepare is: read the claim from the API (never from a cache, it may have been replaced), check parameters, wait for
a holder that is going away, write the intent, durably before hardware is set up, write the CDI file, write the
completion once the intent is durable.
From the intent on everything can be found again: on start, what was only intended is undone, what was completed gets
its CDI file back, what nobody knows is removed. Claims on different devices go side by side; claims
on the same device one after the other (KEP-4381).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from drakkar.api.identities import DeviceKey
from drakkar.drivers.kit import handover, logs, takeover, tracing, turns
from drakkar.drivers.kit.allocation import AllocatedClaim, allocated_claim, from_journal
from drakkar.drivers.kit.cdi_files import ClaimFiles
from drakkar.drivers.kit.claim_status import ClaimStatus
from drakkar.drivers.kit.figures import Figures
from drakkar.drivers.kit.holdings import Holdings
from drakkar.drivers.kit.kind import DeviceKind, Health
from drakkar.drivers.kit.metadata import MetadataFiles
from drakkar.drivers.kit.reading import read_claim
from drakkar.drivers.kit.takeover import Predecessor
from drakkar.errors import DrakkarError
from drakkar.inventory.publishing import SlicePublisher
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock, SystemClock
from drakkar.kube.events import EventRecorder
from drakkar.preparation.claims import PREPARED, ClaimLedger, DeviceBusyError, HeldClaim
from drakkar.preparation.journal import boot_id as host_boot_id
from drakkar.preparation.locks import DeviceLocks
from drakkar.preparation.plugin import PluginServer
from drakkar.preparation.values import (
    ClaimRef,
    ClaimUID,
    DeviceHealth,
    HealthBoard,
    PreparedDevice,
    PrepareResult,
)

_log = logging.getLogger(__name__)

#: The file below a driver's state directory that remembers its claims.
JOURNAL_NAME = "claims.journal"
#: How long a kubelet has to give back what a damaged journal holds, before the API is asked whether it exists.
_DOUBT_SECONDS = 10.0
#: Turns of the event loop in which the answer to a call is written, once its claims are done.
_ANSWERED_TURNS = 8


class NodeDriver:
    """Runs `kind` as the driver of node `node_name`.

    Args:
        client: API client with a node driver's rights (ResourceSlices of its node, read claims and pods).
        plugins_dir, registry_dir: the kubelet's `plugins` and `plugins_registry`.
        cdi_dir: where the runtime looks for CDI files.
        state_dir: where the journal lies; it must survive restarts of the driver.
        boot_id: identity of the machine's boot; claims of another boot are forgotten. Default: this host's.
        instance: a name of its own for a second instance during a rolling update.
        predecessor: another driver of this name whose prepared claims are taken over at the start.
        spans: where its work is told to, call by call and phase by phase (`tracing.configured`).
        device_metadata: give containers a file for each request that says what its devices are (KEP-5304).
        claim_status: write into claims what was prepared (KEP-4817); needs rights that a driver else has not.
    """

    def __init__(
        self,
        kind: DeviceKind,
        *,
        node_name: str,
        client: Client,
        plugins_dir: Path,
        registry_dir: Path,
        cdi_dir: Path,
        state_dir: Path,
        boot_id: str | None = None,
        clock: Clock | None = None,
        instance: str = "",
        predecessor: Predecessor | None = None,
        spans: tracing.Tracing = tracing.OFF,
        device_metadata: bool = False,
        claim_status: bool = False,
    ) -> None:
        self.kind = kind
        self._tracing = spans
        self._predecessor = predecessor
        self.node_name = node_name
        self._device_metadata = device_metadata
        metadata = MetadataFiles(plugins_dir / kind.driver, kind.driver, kind.attributes)
        self.files = ClaimFiles(cdi_dir, kind.driver, metadata)
        self._client = client
        self._clock = clock or SystemClock()
        self._state_dir = state_dir
        self._instance = instance
        self._boot_id = host_boot_id() if boot_id is None else boot_id
        self._ledger: ClaimLedger | None = None
        self.figures = Figures(self._clock.monotonic)
        self._locks = DeviceLocks(self.figures.lock_waits.observe)
        self._calls: set[asyncio.Task[PrepareResult]] = set()
        self._done: list[tuple[str, dict[str, Any]]] = []
        self._board = HealthBoard()
        self._waiting_reason = ""
        self._edits_token: object = None
        self._holdings = Holdings(kind, node_name, lambda: self._claims, client, self._clock)
        self._doubting: asyncio.Task[None] | None = None
        self._status = ClaimStatus(client, kind.driver, node_name, self._clock) if claim_status else None
        self._publisher = SlicePublisher(
            client, driver=kind.driver, node_name=node_name, clock=clock, around=lambda: self._span("publish")
        )
        self._events = EventRecorder(client, kind.driver, node_name, clock=clock)
        self._server = PluginServer(
            kind.driver, self, plugins_dir=plugins_dir, registry_dir=registry_dir, instance=instance, clock=clock
        )

    @property
    def driver_name(self) -> str:
        """The driver's name."""
        return self.kind.driver

    @property
    def registered(self) -> asyncio.Event:
        """Set once the kubelet has accepted the registration."""
        return self._server.registered

    @property
    def publisher(self) -> SlicePublisher:
        """What publishes the slices."""
        return self._publisher

    @property
    def claims(self) -> Mapping[ClaimUID, HeldClaim]:
        """The claims this driver holds devices for, prepared or in the middle of it."""
        return self._claims.claims

    @property
    def device_health(self) -> Sequence[DeviceHealth]:
        """The health of all published devices as it was told last."""
        return self._board.devices

    def not_ready(self) -> list[str]:
        """Why the driver cannot serve claims now, one sentence each; nothing when it can."""
        reasons = []
        if not self.registered.is_set():
            refused = self._server.registration_error
            reasons.append(f"the kubelet refused the registration: {refused}" if refused else "not registered yet")
        if self._waiting_reason:
            reasons.append(f"no devices: {self._waiting_reason}")
        elif not self._publisher.published:
            error = self._publisher.error
            reasons.append("the devices are not published" + (f": {error}" if error else " yet"))
        return reasons

    def tell(self, event_type: str, reason: str, message: str) -> None:
        """Record an event about the node."""
        self._events.record(self._node_object(), event_type, reason, message)

    # --- life -------------------------------------------------------------------------------------------------------

    async def start(self, *, kubelet_within: float = 0.0) -> None:
        """Puts right what the last run left, serves and registers, begins to publish.

        Args:
            kubelet_within: seconds to wait for the kubelet before publishing. Pods are bound the moment a slice
                appears; a kubelet that does not know the driver then fails them, and comes back after some 90 s.

        Raises:
            DrakkarError: another plugin of this name is serving, a directory cannot be written, or the journal is of a
                newer version. A damaged journal is no error: it is set aside and told in an event.
        """
        if self._instance:
            self._server.endpoint.parent.mkdir(parents=True, exist_ok=True)
        async with self._server.alone():  # what another instance is preparing at this moment is not unfinished
            await self._recover()
        await self._server.start()
        await self._publisher.start()
        if kubelet_within:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.registered.wait(), kubelet_within)
        self.refresh()
        if self._claims.doubtful:
            doubted = [held.claim for held in self._claims.claims.values()]
            self._doubting = asyncio.create_task(self._release_lost(doubted), name=f"doubt of {self.driver_name}")

    async def stop(self) -> None:
        """Unregisters, ends calls in flight, stops publishing. Slices and prepared claims stay, as an upgrade needs."""
        await self._server.stop()
        await self._end_calls()
        await self._publisher.stop()
        await self._events.stop()
        self._close_ledger()

    async def kill(self) -> None:
        """Ends at once and leaves everything as a killed process would: sockets, journal, CDI files (for tests)."""
        self._close_ledger()
        await self._server.kill()
        await self._end_calls()
        await self._publisher.stop()
        await self._events.stop()

    async def _end_calls(self) -> None:
        """Cancels calls that outlived their caller; what they had begun is undone, unless the journal is closed."""
        calls: list[asyncio.Task[Any]] = list(self._calls)
        if self._doubting is not None:
            calls.append(self._doubting)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        self._tell_done()
        if self._status is not None:
            await self._status.stop()

    def _close_ledger(self) -> None:
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None

    def refresh(self) -> None:
        """Looks at the hardware again: publishes what changed, tells the health streams. Cheap when nothing did."""
        pool = self.kind.pool()
        if pool is None:
            reason = self.kind.not_ready()
            if reason != self._waiting_reason:
                _log.warning("%s on %s publishes nothing yet: %s", self.driver_name, self.node_name, reason)
                self.tell("Warning", "DevicesNotReady", reason)
            self._waiting_reason = reason
            now = int(self._clock.now().timestamp())
            self._tell_health(
                [DeviceHealth(one.pool_name, one.device_name, "UNKNOWN", now, 0, reason) for one in self._board.devices]
            )
            return
        self._waiting_reason = ""
        try:
            self._publisher.publish(pool)
        except DrakkarError as error:
            _log.error("the devices of %s on %s cannot be published: %s", self.driver_name, self.node_name, error)
            self.tell("Warning", error.reason, error.message)
            return
        known = self.kind.health()
        now = int(self._clock.now().timestamp())
        board = []
        for device in pool.devices:
            health = known.get(device.name, Health("UNKNOWN"))
            board.append(DeviceHealth(pool.name, device.name, health.status, now, message=health.message))
        self._tell_health(board)
        self._rebuild_files()

    def _tell_health(self, board: list[DeviceHealth]) -> None:
        if turns.turned(self._board.devices, board):
            for event in turns.events(self._board.devices, board):
                self.tell(*event)
            self._board.publish(board)

    def _rebuild_files(self) -> None:
        """Writes all CDI files again when what they are made of changed (a driver reload gives nodes new numbers)."""
        token = self.kind.edits_token()
        if token == self._edits_token:
            return
        self._edits_token = token
        for held in list(self._claims.claims.values()):
            if held.state != PREPARED:
                continue
            try:
                claim = from_journal(held.claim, held.detail)
                self.files.write(claim, self.kind.edits(claim))
            except (DrakkarError, OSError) as error:
                _log.error("claim %s: its CDI file cannot be written again: %s", held.claim, error)

    # --- the kubelet's calls ----------------------------------------------------------------------------------------

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[ClaimUID, PrepareResult]:
        """Makes the claims ready, side by side; one claim's failure is its own."""
        with self.figures.call("prepare") as call, self._span("NodePrepareResources"):
            self._catch_up()
            answers = (self._answer(self._prepare(claim), claim, "prepare") for claim in claims)
            results = await self._side_by_side(answers)
            call.failed = sum(1 for result in results if result.error)
        return {claim.uid: result for claim, result in zip(claims, results, strict=True)}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[ClaimUID, str]:
        """Undoes it; claims that are not known are done already."""
        with self.figures.call("unprepare") as call, self._span("NodeUnprepareResources"):
            self._catch_up()
            results = await self._side_by_side(
                self._answer(self._unprepare(claim), claim, "unprepare") for claim in claims
            )
            call.failed = sum(1 for result in results if result.error)
        return {claim.uid: result.error for claim, result in zip(claims, results, strict=True)}

    def health(self) -> AsyncIterator[list[DeviceHealth]]:
        """The health of all published devices, now and at every change."""
        return self._board.watch()

    def _catch_up(self) -> None:
        """During a rolling update the journal has two writers; the plugin server lets one instance work at a time."""
        if self._instance and not self._calls:
            self._claims.catch_up()

    async def _side_by_side(self, calls: Iterable[Coroutine[Any, Any, PrepareResult]]) -> list[PrepareResult]:
        """Runs calls to their end even when the kubelet gives up: it will ask again, and then the answer is there."""
        tasks = [asyncio.create_task(call) for call in calls]
        for task in tasks:
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)
        return await asyncio.shield(asyncio.gather(*tasks))

    async def _answer(self, call: Awaitable[PrepareResult], claim: ClaimRef, doing: str) -> PrepareResult:
        begun = self._clock.monotonic()
        with self._span(doing, claim) as span:
            try:
                result = await call
                took = self._clock.monotonic() - begun
                devices = [device.device_name for device in result.devices]
                span.note("devices", devices)
                self._done.append((doing, logs.about(claim, self.node_name, devices, took)))
                if len(self._done) == 1:
                    _in_turns(asyncio.get_running_loop(), _ANSWERED_TURNS, self._tell_done)
                return result
            except DrakkarError as error:
                text = _sentence(error)
            except OSError as error:
                text = f"{self.driver_name} on {self.node_name}: {error}"
            _log.warning("%s: %s", doing, text, extra=logs.about(claim, self.node_name))
            span.fail(text)
            return PrepareResult(error=text)

    def _tell_done(self) -> None:
        """Logs what was answered; later than the answer, since no kubelet waits for a line."""
        done, self._done = self._done, []
        for doing, about in done:
            _log.info("%s: done", doing, extra=about)

    def _span(self, name: str, claim: ClaimRef | None = None) -> AbstractContextManager[tracing.Span]:
        if self._tracing is tracing.OFF:
            return self._tracing.span(name)
        about = {"driver": self.driver_name, "node": self.node_name}
        if claim is not None:
            about |= {"claim.uid": claim.uid, "claim.namespace": claim.namespace, "claim.name": claim.name}
        return self._tracing.span(name, about)

    async def _prepare(self, ref: ClaimRef) -> PrepareResult:
        async with self._locks.holding([_claim_key(ref)]):
            held = self._claims.claims.get(ref.uid)
            if held is not None and held.state == PREPARED:
                return self._once_more(held)
            deadline = self._clock.monotonic() + handover.WAIT_SECONDS
            with self._span("read claim"):
                found = await read_claim(self._client, self._clock, ref, until=deadline)
            claim = allocated_claim(ref, found, driver=self.driver_name, pool=self.node_name)
            if not claim.devices:
                return PrepareResult()
            self.kind.check(claim)
            while True:
                with self._span("wait for holders"):
                    await self._holdings.await_release(claim, deadline)
                async with self._locks.holding(self._holdings.hardware(claim)):
                    try:
                        return await self._make_ready(claim)
                    except DeviceBusyError:
                        continue  # somebody was quicker between the wait and the lock: look who it is

    async def _make_ready(self, claim: AllocatedClaim) -> PrepareResult:
        self._holdings.check(claim)
        uid = claim.claim.uid
        exclusive, shared = self._holdings.of(claim)
        before = self._claims.claims.get(uid)  # of a prepare that could not be taken back: it knows how things were
        notes = {**self.kind.notes(claim), **(before.detail.get("notes", {}) if before else {})}
        claim = replace(claim, notes=notes, metadata=self._device_metadata)
        activates = self.kind.needs_activation(claim)
        # A conflict, and a journal that cannot be written, are found here: nothing is to be undone.
        intent = self._claims.begin(claim.claim, exclusive, shared=shared, detail=claim.to_json())
        try:
            if activates:
                with self._span("journal intent"):
                    await intent
                with self._span("device setup"):
                    await self.kind.activate(claim)
                with self._span("CDI write"):
                    self.files.write(claim, self.kind.edits(claim))
            else:
                # Only the CDI file is to be made. One that no journal knows is removed at the next start, so it need
                # not wait for the barrier of the intent.
                try:
                    with self._span("CDI write"):
                        self.files.write(claim, self.kind.edits(claim))
                finally:
                    with self._span("barrier"):
                        await intent
            with self._span("journal completion"):
                held = await self._claims.complete(uid, self._prepared(claim))
        except BaseException:
            await self._undo(claim)
            raise
        self._follow_claims()
        if self._status is not None:
            self._status.tell(claim, self.kind.attributes(claim))
        return PrepareResult(held.prepared)

    def _follow_claims(self) -> None:
        if self.kind.follows_claims:
            self.refresh()

    def _prepared(self, claim: AllocatedClaim) -> list[PreparedDevice]:
        return [
            PreparedDevice((device.base_request,), device.pool, device.device, ids, device.share_id)
            for device, ids in zip(claim.devices, self.files.device_ids(claim), strict=True)
        ]

    async def _undo(self, claim: AllocatedClaim) -> None:
        """Takes back a prepare that failed half way; what cannot be taken back stays in the journal."""
        uid = claim.claim.uid
        try:
            if uid in self._claims.claims:  # else the intent could not be written, and nothing was done
                await self.kind.deactivate(self._holdings.only_its(claim))
            self.files.remove(uid)
            await self._claims.release(uid)
        except (DrakkarError, OSError) as error:
            _log.error("claim %s: undoing a failed prepare failed: %s", claim.claim, error)
        self._holdings.announce_release()

    def _once_more(self, held: HeldClaim) -> PrepareResult:
        """The same answer for what is prepared, after looking that CDI file and devices are still there."""
        claim = from_journal(held.claim, held.detail)
        self.kind.restore(claim)
        if not self.files.path(held.claim.uid).exists():
            _log.warning("claim %s: its CDI file was gone, written again", held.claim)
            self.files.write(claim, self.kind.edits(claim))
        return PrepareResult(held.prepared)

    async def _unprepare(self, ref: ClaimRef) -> PrepareResult:
        async with self._locks.holding([_claim_key(ref)]):
            held = self._claims.claims.get(ref.uid)
            if held is None:
                self.files.remove(ref.uid)
                return PrepareResult()
            claim = from_journal(held.claim, held.detail)
            async with self._locks.holding(self._holdings.hardware(claim)):
                with self._span("device release"):
                    await self.kind.deactivate(self._holdings.only_its(claim))
                with self._span("CDI removal"):
                    self.files.remove(ref.uid)
                with self._span("journal release"):
                    await self._claims.release(ref.uid)
            self._holdings.announce_release()
            self._follow_claims()
            return PrepareResult()

    # --- restart ----------------------------------------------------------------------------------------------------

    @property
    def _claims(self) -> ClaimLedger:
        if self._ledger is None:
            raise DrakkarError(f"the driver {self.driver_name} is not running", reason="NotRunning")
        return self._ledger

    async def _recover(self) -> None:
        self._edits_token = self.kind.edits_token()
        self._ledger = ledger = ClaimLedger(self._state_dir / JOURNAL_NAME, boot_id=self._boot_id)
        if ledger.damage is not None:
            _log.error("the journal of %s was damaged: %s", self.driver_name, ledger.damage)
            self.tell("Warning", "JournalDamaged", str(ledger.damage))
        for held in ledger.forgotten:
            self.files.remove(held.claim.uid)
        if self._predecessor is not None:
            await self._take_over(self._predecessor, ledger)
        for held in list(ledger.claims.values()):
            claim = from_journal(held.claim, held.detail)
            try:
                if held.state == PREPARED:
                    await self.kind.activate(claim)
                    self.files.write(claim, self.kind.edits(claim))
                else:
                    _log.info("claim %s: taking back an unfinished prepare", held.claim)
                    await self.kind.deactivate(self._holdings.only_its(claim))
                    self.files.remove(held.claim.uid)
                    await ledger.release(held.claim.uid)
            except (DrakkarError, OSError) as error:
                # The claim stays held: better a device that nobody gets than one that two get.
                _log.error("claim %s cannot be restored: %s", held.claim, error)
                self.tell("Warning", "ClaimNotRestored", f"{held.claim}: {error}")
        await self.kind.sweep([from_journal(held.claim, held.detail) for held in ledger.claims.values()])
        self.files.sweep(ledger.claims)
        for uid in self.files.strangers(ledger.claims):
            _log.info("removing the CDI file of claim %s, which nobody holds", uid)
            self.files.remove(uid)

    async def _release_lost(self, doubted: Sequence[ClaimRef]) -> None:
        """What a damaged journal may have lost is that claims were released, of which no kubelet will speak again.

        Claims that the API does not have any more are released here; later, for a kubelet may be about to. The next run
        of a driver that ends before finds the journal in doubt again.
        """
        await self._clock.sleep(_DOUBT_SECONDS)
        unsure = False
        for ref in doubted:
            held = self._claims.claims.get(ref.uid)
            try:
                until = self._clock.monotonic() + handover.WAIT_SECONDS
                if held is None or not await handover.is_gone(self._client, self._clock, held, until=until):
                    continue
                async with self._server.alone():
                    failed = (await self.unprepare([ref]))[ref.uid]
                if failed:
                    raise DrakkarError(failed)
            except (DrakkarError, OSError) as error:
                unsure = True
                _log.error("claim %s may be held for nobody: %s", ref, str(error) or type(error).__name__)
            else:
                self.tell("Warning", "ClaimReleased", f"{ref}: it is gone, and what told of its release was damaged")
        if unsure:
            return  # the journal keeps the doubt for the next start
        try:
            async with self._server.alone():
                self._catch_up()
                self._claims.trust()
        except (DrakkarError, OSError) as error:
            _log.error("the journal of %s stays in doubt: %s", self.driver_name, str(error) or type(error).__name__)

    async def _take_over(self, predecessor: Predecessor, ledger: ClaimLedger) -> None:
        def noted(claim: AllocatedClaim) -> AllocatedClaim:
            return replace(claim, notes=self.kind.notes(claim, ours=False))

        async def undo(claim: AllocatedClaim) -> None:
            await self.kind.deactivate(self._holdings.only_its(claim))

        await takeover.take_over(
            predecessor,
            ledger,
            self.files,
            self._client,
            driver=self.driver_name,
            pool=self.node_name,
            keys=self._holdings.of,
            noted=noted,
            undo=undo,
            tell=self.tell,
        )
        for uid in self.files.left_by_other():
            self.files.remove_left_by_other(uid)
        predecessor.taken_over()

    def _node_object(self) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node_name, "uid": self.node_name}}


def _in_turns(loop: asyncio.AbstractEventLoop, turns: int, action: Callable[[], None]) -> None:
    if turns:
        loop.call_soon(_in_turns, loop, turns - 1, action)
    else:
        action()


def _claim_key(ref: ClaimRef) -> DeviceKey:
    """The lock of a claim; sorts before every device's, so that claims come first in the global order."""
    return DeviceKey("", "", ref.uid)


def _sentence(error: DrakkarError) -> str:
    extra = f" (expected {error.expected})" if error.expected else ""
    return f"{error.message}{extra}"
