"""Which kernel driver has a PCI function, and giving it to another: sysfs below any root.

Documentation/ABI/testing/sysfs-bus-pci and Documentation/driver-api/vfio.rst of the kernel. A write to sysfs is a call
into a driver: it may refuse with any error number, and it may block as long as somebody uses the device. So all writes
go through `store`, which a simulated kernel replaces, and everything else is reading small files and links.
"""

from __future__ import annotations

import os
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from drakkar.errors import DrakkarError
from drakkar.hardware.machine import DeviceNode
from drakkar.hardware.tree import node_numbers

_DEVICES, _DRIVERS = "/sys/bus/pci/devices", "/sys/bus/pci/drivers"
_GROUPS = "/sys/kernel/iommu_groups"
_MODPROBE_SECONDS = 30
#: How the kernel shows a function that no driver was chosen for.
_NO_OVERRIDE = "(null)"


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One function of an IOMMU group: its address, class (`0x040300`) and driver ("" if none)."""

    address: str
    pci_class: str
    driver: str

    @property
    def is_bridge(self) -> bool:
        """Bridges stay with the host: VFIO does not ask for them (drivers/vfio, vfio_pci_core)."""
        return self.pci_class.startswith("0x06")

    @property
    def is_display(self) -> bool:
        """A GPU, of whatever kind."""
        return self.pci_class.startswith("0x03")

    @property
    def card(self) -> str:
        """What it shares with the other functions of the same card: the address without the function."""
        return self.address.rpartition(".")[0]


class PciBus:
    """The PCI functions and their drivers below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def root(self) -> Path:
        """Below which /sys, /proc and /dev lie."""
        return self._root

    # --- changing ---------------------------------------------------------------------------------------------------

    def store(self, attribute: str, value: str) -> None:
        """Write a kernel attribute, by its absolute path. May block; raises OSError as the kernel refuses."""
        descriptor = os.open(self._path(attribute), os.O_WRONLY | getattr(os, "O_CLOEXEC", 0))
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)

    def load_module(self, name: str) -> None:
        """Load a kernel module with the tool of the system below the root.

        Raises:
            DrakkarError: there is no such module, or it cannot be loaded; the reason is modprobe's.
        """
        around = [] if self.root == Path("/") else ["chroot", str(self.root)]
        try:
            done = subprocess.run(
                [*around, "modprobe", name], capture_output=True, text=True, timeout=_MODPROBE_SECONDS, check=False
            )
            said = "" if done.returncode == 0 else (done.stderr or done.stdout).strip() or f"exit {done.returncode}"
        except (OSError, subprocess.SubprocessError) as error:
            said = str(error)
        if said:
            raise module_missing(name, said)

    def override(self, address: str, driver: str) -> None:
        """Say which driver alone may take the function; "" lets any that fits. Raises OSError."""
        if self.overridden(address) != driver:
            self.store(f"{_DEVICES}/{address}/driver_override", f"{driver}\n")

    def unbind(self, address: str) -> None:
        """Take the function from its driver; nothing if it has none. Blocks while it is used. Raises OSError."""
        driver = self.driver(address)
        if driver:
            self.store(f"{_DRIVERS}/{driver}/unbind", address)

    def bind(self, address: str, driver: str) -> None:
        """Give the function to `driver`. Raises OSError: the driver is not loaded, or does not take it."""
        self.store(f"{_DRIVERS}/{driver}/bind", address)

    # --- looking ----------------------------------------------------------------------------------------------------

    def exists(self, address: str) -> bool:
        """Whether there is such a function."""
        return self._path(f"{_DEVICES}/{address}").exists()

    def driver(self, address: str) -> str:
        """The driver that has the function; "" if none."""
        try:
            return self._path(f"{_DEVICES}/{address}/driver").readlink().name
        except OSError:
            return ""

    def overridden(self, address: str) -> str:
        """The driver that alone may take the function; "" if any may."""
        text = self.attribute(address, "driver_override")
        return "" if text == _NO_OVERRIDE else text

    def has_driver(self, driver: str) -> bool:
        """Whether a driver of this name is loaded."""
        return self._path(f"{_DRIVERS}/{driver}").is_dir()

    def attribute(self, address: str, name: str) -> str:
        """A small attribute of the function without its line end; "" if it has none."""
        return self.text(f"{_DEVICES}/{address}/{name}")

    def text(self, path: str) -> str:
        """A small file by its absolute path, without its line end; "" if it cannot be read."""
        try:
            return self._path(path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""

    def group(self, address: str) -> str:
        """The number of the function's IOMMU group; "" without an IOMMU."""
        try:
            return self._path(f"{_DEVICES}/{address}/iommu_group").readlink().name
        except OSError:
            return ""

    def members(self, group: str) -> list[GroupMember]:
        """The functions of an IOMMU group, by address."""
        try:
            addresses = sorted(entry.name for entry in self._path(f"{_GROUPS}/{group}/devices").iterdir())
        except OSError:
            return []
        return [GroupMember(one, self.attribute(one, "class"), self.driver(one)) for one in addresses]

    @property
    def has_iommu(self) -> bool:
        """Whether the kernel has an IOMMU and uses it: then there is at least one group."""
        try:
            return next(self._path(_GROUPS).iterdir(), None) is not None
        except OSError:
            return False

    @property
    def has_iommufd(self) -> bool:
        """Whether the kernel offers IOMMUFD (/dev/iommu)."""
        return self.node("/dev/iommu", "/sys/class/misc/iommu") is not None

    # --- device nodes -----------------------------------------------------------------------------------------------

    def vfio_nodes(self, address: str) -> tuple[DeviceNode | None, DeviceNode | None]:
        """The nodes that open a function bound to VFIO: its group's, and its own for IOMMUFD; None where missing."""
        group = self.group(address)
        legacy = self.node(f"/dev/vfio/{group}", f"/sys/class/vfio/{group}", mode=0o600) if group else None
        try:
            names = sorted(entry.name for entry in self._path(f"{_DEVICES}/{address}/vfio-dev").iterdir())
        except OSError:
            names = []
        own = [self.node(f"/dev/vfio/devices/{one}", f"/sys/class/vfio-dev/{one}", mode=0o600) for one in names[:1]]
        return legacy, own[0] if own else None

    def node(self, path: str, device: str, *, mode: int = 0o666) -> DeviceNode | None:
        """A device node with the numbers that sysfs gives it (`<device>/dev`), else those it has; None: neither.

        sysfs is the same in every container; a container's own /dev was made when it started and lacks what came later.
        """
        place = self._path(path)
        found = node_numbers(place)
        if found is not None:
            mode = stat.S_IMODE(place.stat().st_mode)
        major, _, minor = self.text(f"{device}/dev").partition(":")
        if major.isdecimal() and minor.isdecimal():
            return DeviceNode(path, int(major), int(minor), mode=mode)
        return DeviceNode(path, found[1], found[2], found[0], mode) if found is not None else None

    def _path(self, path: str) -> Path:
        return self.root / path.lstrip("/")


def module_missing(name: str, said: str) -> DrakkarError:
    """What `load_module` raises."""
    return DrakkarError(
        f"the kernel module {name} cannot be loaded: {said}",
        reason="ModuleMissing",
        subject=name,
        expected=f"a kernel with {name}",
        next_step=f"install the kernel's package that has {name}, or load it on the host: modprobe {name}",
    )
