"""Giving whole GPUs to virtual machines and taking them back: IOMMU groups, drivers, device nodes (VFIO).

What a GPU was before is noted with the claim, in the journal, before anything is touched: its address, the driver that
had it and every function of its card, persistence mode. Giving back goes by that note alone, so that it is right after
a crash at any step, and a GPU that an administrator bound to vfio-pci stays there.

Taking a GPU from a driver blocks in the kernel while a process uses it, and cannot be broken off then. So it is asked
for first: NVIDIA's module has a lock that it grants only when nobody does (`unbindLock`), and while it does not, who is
in the way is looked up and named. Every write runs in a thread of its own and is given up, not waited for, when it does
not come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from drakkar.drivers.gpu.configs import VfioOptions
from drakkar.drivers.kit import PreparationError
from drakkar.errors import DrakkarError
from drakkar.hardware.holders import Holder, holders
from drakkar.hardware.machine import DeviceNode
from drakkar.hardware.pci_drivers import GroupMember, PciBus
from drakkar.kube.clock import Clock, wait_for
from drakkar.vendors.nvidia import passthrough
from drakkar.vendors.nvidia.gpu import Gpu
from drakkar.vendors.nvidia.machine import NvidiaMachine
from drakkar.vendors.nvidia.passthrough import NVIDIA_DRIVER, GpuFunction, is_vfio

_log = logging.getLogger(__name__)

#: How long somebody who uses a GPU is waited for, and how often is looked: the kubelet gives a call 45 s in all.
FREE_SECONDS = 10.0
_LOOK_SECONDS = 0.25
#: After how long a change of drivers counts as stuck in the kernel.
SWITCH_SECONDS = 15.0
#: Drivers under which the rest of a group may stay: they do no DMA for the host (drivers/vfio, vfio_dev_viable).
_HARMLESS = ("", "pci-stub", "pcieport")
_UNKNOWN = "something unseen (a process of another process namespace, or the kernel's own nvidia-drm with modeset=1)"


@dataclass(frozen=True, slots=True)
class Taken:
    """One function as it was: its address and the driver that had it ("" if none)."""

    address: str
    driver: str


@dataclass(frozen=True, slots=True)
class Note:
    """What a claim's device was before it was taken. `minor` is the GPU's under NVIDIA's driver, if it had one."""

    functions: tuple[Taken, ...]
    persistence: bool = False
    minor: int | None = None

    @property
    def address(self) -> str:
        """The GPU's own address."""
        return self.functions[0].address

    def to_json(self) -> dict[str, Any]:
        """The note for the journal."""
        functions = [{"address": one.address, "driver": one.driver} for one in self.functions]
        return {"functions": functions, "persistence": self.persistence, "minor": self.minor}

    @classmethod
    def from_json(cls, note: Mapping[str, Any]) -> Note:
        """The note that `to_json` wrote."""
        functions = tuple(Taken(one["address"], one["driver"]) for one in note["functions"])
        return cls(functions, note["persistence"], note["minor"])


class Passthrough:
    """VFIO on the GPUs of `machine`."""

    def __init__(self, machine: NvidiaMachine, clock: Clock) -> None:
        self._machine = machine
        self._clock = clock
        self._running: dict[str, asyncio.Future[None]] = {}
        self._stuck: set[str] = set()
        self._seen: tuple[int, tuple[GpuFunction, ...]] | None = None

    @property
    def bus(self) -> PciBus:
        """The machine's PCI bus."""
        return self._machine.bus

    def functions(self) -> tuple[GpuFunction, ...]:
        """The GPUs on the bus that may be passed through now; none without an IOMMU."""
        if not self.bus.has_iommu:
            return ()
        return tuple(one for one in passthrough.functions(self.bus) if one.group and _may_be_taken(one.driver))

    def function(self, device: str) -> GpuFunction:
        """The GPU that a device name `gpu-vfio-<n>` means. Raises PreparationError."""
        number = passthrough.number(device)
        for one in passthrough.functions(self.bus):
            if one.index == number:
                return one
        raise PreparationError(
            f"requested device {device} is not known on node {self._machine.name}",
            reason="UnknownDevice",
            subject=device,
            expected="a GPU on the PCI bus",
        )

    def name_at(self, address: str) -> str | None:
        """The device name of the GPU at a bus address; None if there is none."""
        return next((one.name for one in self._placed() if one.bus_id == address), None)

    def of_group(self, device: str) -> frozenset[str]:
        """The other devices in the IOMMU group of `device`: one user at a time can have the group."""
        own = next((one for one in self._placed() if one.name == device), None)
        if own is None or not own.group:
            return frozenset()
        return frozenset(one.name for one in self._placed() if one.group == own.group and one.name != device)

    def _gpu_at(self, address: str) -> Gpu | None:
        """The GPU at a bus address as NVIDIA's driver has it; None if it has none there."""
        return next((gpu for gpu in self._machine.devices() if gpu.bus_id == address), None)

    def _placed(self) -> tuple[GpuFunction, ...]:
        """The GPUs for what does not change with their drivers: looked for again when the machine has changed."""
        if self._seen is None or self._seen[0] != self._machine.generation:
            self._seen = (self._machine.generation, passthrough.functions(self.bus))
        return self._seen[1]

    # --- before -----------------------------------------------------------------------------------------------------

    def check(self, devices: Sequence[str]) -> None:
        """Refuse what cannot be passed through: no IOMMU, a foreign driver, virtual functions, a group shared with
        what the host needs. Raises PreparationError.
        """
        if not self.bus.has_iommu:
            raise PreparationError(
                f"node {self._machine.name} cannot pass a GPU through: its IOMMU is off",
                reason="NoIommu",
                subject=self._machine.name,
                next_step="switch VT-d or AMD-Vi on in the firmware and boot the kernel with intel_iommu=on iommu=pt",
            )
        wanted = {device: self.function(device) for device in devices}
        for device, function in wanted.items():
            self._check_function(device, function)
            self._check_group(device, function, {one.bus_id for one in wanted.values()})

    def note(self, device: str, *, ours: bool = True) -> Note:
        """What the device is now. `ours` False: another driver of this name has taken it from NVIDIA's already."""
        function = self.function(device)
        mine, _ = self._parts(function)
        functions = (Taken(function.bus_id, function.driver), *(Taken(one.address, one.driver) for one in mine))
        if not ours and function.passed_through:
            functions = (Taken(function.bus_id, NVIDIA_DRIVER), *functions[1:])
        gpu = self._gpu_at(function.bus_id)
        had = function.driver == NVIDIA_DRIVER and self._machine.persistence(function.bus_id)
        had = had or (not ours and function.passed_through)  # NVIDIA's DRA driver always switches it on again
        return Note(functions, had, gpu.minor if gpu is not None else None)

    def _check_function(self, device: str, function: GpuFunction) -> None:
        if not _may_be_taken(function.driver):
            raise PreparationError(
                f"requested device {device} cannot be passed through: GPU {function.bus_id} is bound to the driver"
                f" {function.driver}",
                reason="ForeignDriver",
                subject=function.bus_id,
                expected=f"{NVIDIA_DRIVER}, a VFIO driver, or none",
            )
        virtual = self.bus.attribute(function.bus_id, "sriov_numvfs")
        if virtual not in ("", "0"):
            raise PreparationError(
                f"requested device {device} cannot be passed through: GPU {function.bus_id} has {virtual} virtual"
                " functions",
                reason="HasVirtualFunctions",
                subject=function.bus_id,
                next_step=f"echo 0 > /sys/bus/pci/devices/{function.bus_id}/sriov_numvfs",
            )

    def _check_group(self, device: str, function: GpuFunction, together: set[str]) -> None:
        """VFIO opens a group only as a whole: what is in it and stays with the host stands in the way."""
        _, others = self._parts(function)
        foreign = [one for one in others if one.address not in together and not _stays(one)]
        if foreign:
            named = ", ".join(f"{one.address} (driver {one.driver})" for one in foreign)
            raise PreparationError(
                f"requested device {device} cannot be passed through: IOMMU group {function.group} of GPU"
                f" {function.bus_id} also has {named}, and a group goes as a whole",
                reason="GroupShared",
                subject=function.bus_id,
                next_step="ask for all GPUs of the group in one claim, or move the card to a slot with ACS",
            )

    def _parts(self, function: GpuFunction) -> tuple[list[GroupMember], list[GroupMember]]:
        """The rest of the group: functions of the same card (audio, USB), which go along; everything else."""
        rest = [one for one in self.bus.members(function.group) if one.address != function.bus_id and not one.is_bridge]
        card = function.bus_id.rpartition(".")[0]
        mine = [one for one in rest if one.card == card and not one.is_display]
        return mine, [one for one in rest if one not in mine]

    # --- taking and giving back -------------------------------------------------------------------------------------

    async def take(self, device: str, note: Note) -> None:
        """Bind all functions of the device to VFIO; those that are bound already stay. Raises PreparationError."""
        for one in note.functions:
            if not self.bus.exists(one.address):
                raise PreparationError(
                    f"requested device {device} is gone: there is no PCI function {one.address}",
                    reason="DeviceGone",
                    subject=one.address,
                )
            now = self.bus.driver(one.address)
            if not is_vfio(now):
                await self._take(device, one.address)
            elif not is_vfio(one.driver):  # giving it back may have been cut off before anything but this was undone
                await self._kernel(one.address, "overriding", partial(self.bus.override, one.address, now))
        self._machine.poll()

    async def give_back(self, device: str, note: Note) -> None:
        """Bind the functions of the device to the drivers they had; those that have them already stay.

        Raises:
            PreparationError: a process still uses it, or the driver does not take it back.
        """
        for one in reversed(note.functions):
            if self.bus.exists(one.address) and not is_vfio(one.driver):
                await self._give_back(device, one)
        self._machine.poll()
        if note.persistence and self.bus.driver(note.address) == NVIDIA_DRIVER:
            try:
                await self._kernel(
                    note.address, "persistence mode", lambda: self._machine.set_persistence(note.address, True)
                )
            except DrakkarError as error:  # the GPU is back: no reason to keep its claim
                _log.warning("GPU %s: its persistence mode cannot be switched on again: %s", note.address, error)

    async def _take(self, device: str, address: str) -> None:
        bus, machine = self.bus, self._machine
        module = passthrough.vfio_module(bus, address)
        if not bus.has_driver(passthrough.vfio_driver(bus, module)):
            await self._kernel(address, f"loading {module}", lambda: bus.load_module(module))
        driver = passthrough.vfio_driver(bus, module)
        if bus.driver(address) == NVIDIA_DRIVER:
            if machine.persistence(address):
                await self._kernel(address, "persistence mode", lambda: machine.set_persistence(address, False))
            await self._free_of_users(device, address)

        def switch() -> None:
            # Locked, nobody can open the GPU any more, NVML neither; it need not stand still as long as that takes.
            locked = bus.text(_lock_file(address)) == "1"
            with contextlib.nullcontext() if locked else machine.without_library():
                bus.override(address, driver)
                bus.unbind(address)
                bus.bind(address, driver)

        await self._kernel(address, f"binding to {driver}", switch)

    async def _give_back(self, device: str, before: Taken) -> None:
        bus, address = self.bus, before.address
        now = bus.driver(address)
        if now == before.driver and now:
            await self._kernel(address, "unlocking", lambda: self._unlock(address))
            return
        if now and not is_vfio(now):
            _log.warning("%s: %s has the driver %s now and keeps it", device, address, now)
            return
        await self._closed(device, address)

        def switch() -> None:
            bus.override(address, "")
            if is_vfio(bus.driver(address)):
                bus.unbind(address)
            if before.driver and bus.has_driver(before.driver):  # else it takes the function when it is loaded
                bus.bind(address, before.driver)

        await self._kernel(address, f"binding to {before.driver or 'no driver'}", switch)

    async def _free_of_users(self, device: str, address: str) -> None:
        """Returns when NVIDIA's module has locked the GPU for us; names who uses it when that takes too long."""
        gpu = self._gpu_at(address)
        nodes = gpu.nodes if gpu is not None else ()
        users: list[Holder] = []

        def ask() -> None:
            with self._machine.without_library():
                locked = self._lock(address)
                # Without such a lock it has to do that nobody is seen; with it, somebody may be who is not seen.
                users[:] = [] if locked else holders(self.bus.root, nodes)
                if locked is False and not users:
                    users.append(Holder(0, _UNKNOWN))

        named = f"GPU {address}" if gpu is None else f"GPU {address} (/dev/nvidia{gpu.minor})"
        await self._nobody(named, device, address, ask, users)

    async def _closed(self, device: str, address: str) -> None:
        """Returns when no process has the VFIO nodes of a function open."""
        users: list[Holder] = []

        def ask() -> None:
            nodes = [node for node in self.bus.vfio_nodes(address) if node is not None]
            users[:] = holders(self.bus.root, nodes) if nodes else []

        await self._nobody(f"the VFIO device of GPU {address}", device, address, ask, users)

    async def _nobody(self, what: str, device: str, address: str, ask: Callable[[], None], users: list[Holder]) -> None:
        deadline = self._clock.monotonic() + FREE_SECONDS
        while True:
            await self._kernel(address, "looking for users", ask)
            if not users:
                return
            if self._clock.monotonic() >= deadline:
                raise PreparationError(
                    f"{what} is in use by {', '.join(_named(users))}; waited {FREE_SECONDS:.0f} s for device {device}",
                    reason="InUse",
                    subject=address,
                    next_step="end that process, or keep it from GPUs that are passed through",
                )
            await self._clock.sleep(_LOOK_SECONDS)

    def _lock(self, address: str) -> bool | None:
        """Ask NVIDIA's module to keep everybody from opening the GPU; None where it has no such lock."""
        file = _lock_file(address)
        if not self.bus.text(file):
            return None
        self.bus.store(file, "1")
        return self.bus.text(file) == "1"

    def _unlock(self, address: str) -> None:
        file = _lock_file(address)
        if self.bus.text(file) == "1":
            self.bus.store(file, "0")
        if is_vfio(self.bus.overridden(address)):
            self.bus.override(address, "")

    async def _kernel(self, address: str, doing: str, work: Callable[[], None]) -> None:
        """Run what may block in the kernel, one thing at a time for each function. Raises PreparationError."""
        before = self._running.get(address)
        if before is not None and not before.done():  # its caller gave up: it is stuck, or was cancelled just now
            late = address in self._stuck or not await wait_for(self._clock, before, SWITCH_SECONDS)
            if late and not before.done():
                raise self._never_came_back(address, "an earlier change of its driver")
        self._stuck.discard(address)
        future = self._running[address] = _in_thread(work, f"{address} {doing}")
        if not await wait_for(self._clock, future, SWITCH_SECONDS):
            self._stuck.add(address)
            future.add_done_callback(lambda late: _log.warning("%s: %s came back late: %s", address, doing, _end(late)))
            raise self._never_came_back(address, doing)
        del self._running[address]
        try:
            future.result()
        except OSError as error:
            raise PreparationError(
                f"GPU function {address}: {doing} was refused by the kernel: {error.strerror} ({error.filename})",
                reason="KernelRefused",
                subject=address,
                next_step="look for the function in the kernel log: dmesg | grep " + address,
            ) from error

    def _never_came_back(self, address: str, doing: str) -> PreparationError:
        return PreparationError(
            f"GPU function {address}: {doing} has not come back from the kernel for {SWITCH_SECONDS:.0f} s",
            reason="KernelStuck",
            subject=address,
            next_step="end what uses the GPU, or reboot the node; the kernel log names the function",
        )

    # --- device nodes -----------------------------------------------------------------------------------------------

    def nodes(self, device: str, address: str, options: VfioOptions) -> tuple[DeviceNode, ...]:
        """What a container needs to drive the GPU at `address`: VFIO's own node, the group's or its own, IOMMUFD's.

        `/dev/vfio/vfio` always: libvirt tells by it whether there is VFIO at all. Raises PreparationError.
        """
        legacy, own = self.bus.vfio_nodes(address)
        container = self.bus.node("/dev/vfio/vfio", "/sys/class/misc/vfio")
        wanted: Iterable[DeviceNode | None] = (container, legacy)
        if options.prefer_iommufd and self.bus.has_iommufd and own is not None:
            api = (self.bus.node("/dev/iommu", "/sys/class/misc/iommu"),) if options.api_device else ()
            wanted = (container, own, *api)
        found = tuple(node for node in wanted if node is not None)
        driver = self.bus.driver(address)
        if not is_vfio(driver) or (legacy not in found and own not in found):
            raise PreparationError(
                f"device {device} has no VFIO device node: GPU {address} is bound to {driver or 'no driver'}",
                reason="NoVfioNode",
                subject=address,
            )
        return found


def _lock_file(address: str) -> str:
    return f"/proc/driver/nvidia/gpus/{address}/unbindLock"


def _may_be_taken(driver: str) -> bool:
    return driver in ("", NVIDIA_DRIVER) or is_vfio(driver)


def _stays(member: GroupMember) -> bool:
    """Whether a function of the group may stay as it is while the group is passed through."""
    return member.driver in _HARMLESS or is_vfio(member.driver)


def _named(users: Sequence[Holder]) -> list[str]:
    return [str(one) if one.pid else one.command for one in users]


def _end(late: asyncio.Future[None]) -> str:
    return "the driver ended" if late.cancelled() else str(late.exception() or "done")


def _in_thread(work: Callable[[], None], name: str) -> asyncio.Future[None]:
    """`work` in a daemon thread: a write that never comes back must not keep the process from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def tell(error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            work()
        except BaseException as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(tell, error)
        except RuntimeError:
            _log.warning("%s: came back after the driver had ended", name)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
