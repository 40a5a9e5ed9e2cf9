"""The whole way from a host to its CDI specification, in the mode that fits it or that was asked for."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from drakkar.errors import DrakkarError
from drakkar.hardware.lookup import Root, is_file
from drakkar.injection import versions
from drakkar.injection.model import ContainerEdits, Device, DeviceNode, Mount, Spec, plain
from drakkar.injection.simplify import simplified, with_merged_device
from drakkar.vendors.nvidia.cdi import devices as gpus
from drakkar.vendors.nvidia.cdi import modes, tegra
from drakkar.vendors.nvidia.cdi.driver import Driver
from drakkar.vendors.nvidia.cdi.found import MOUNT_OPTIONS, Found, character_devices, edits, mounts
from drakkar.vendors.nvidia.cdi.graphics import graphics_found
from drakkar.vendors.nvidia.cdi.hooks import DISABLE_DEVICE_NODE_MODIFICATION, UPDATE_APPLICATION_PROFILE, HookSet
from drakkar.vendors.nvidia.nvml_machine import NvmlMachine

MODES = ("auto", *modes.KINDS)
_CONTROL_NODES = ("/dev/nvidia-modeset", "/dev/nvidia-uvm-tools", "/dev/nvidia-uvm", "/dev/nvidiactl")
_VOID = Mount(
    host_path="/dev/null",
    container_path="/var/run/nvidia-container-devices/void",
    options=("ro", "nosuid", "nodev", "bind"),
)
#: Keeps NVIDIA's old runtime from injecting devices a second time.
_NOT_BY_RUNTIME = "NVIDIA_VISIBLE_DEVICES=void"
_NOTHING = ("NVCT_EMPTY_DEVICE=",)
_INTEGRATED = ("(nvgpu)", "NVIDIA Thor")
_ORIN = "Orin (nvgpu)"


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateOptions:
    """What `drakkar cdi generate --vendor nvidia` can be asked for; the defaults are those of the toolkit."""

    mode: str = "auto"
    driver_root: str = "/"
    device_root: str = ""
    system_root: str = ""
    strategies: tuple[str, ...] = ("index", "uuid")
    device_ids: tuple[str, ...] = ("all",)
    all_device: bool = True
    vendor: str = ""
    device_class: str = ""
    hooks: HookSet = field(default_factory=HookSet)
    library_search: tuple[str, ...] = ()
    config_search: tuple[str, ...] = ()
    csv_files: tuple[str, ...] = ()
    csv_ignore: tuple[str, ...] = ()
    csv_compat_root: str = "/usr/local/cuda/compat_orin"
    explicit_libraries: bool = False
    sockets: bool = True
    groups: bool = True
    numbers: bool = True


@dataclass(frozen=True, slots=True)
class Generated:
    """A specification, the mode that made it, and what a reader should know (what was left out, and why)."""

    spec: Spec
    mode: str
    notes: tuple[str, ...] = ()


def generate(options: GenerateOptions) -> Generated:
    """The specification of a host, declared in the oldest version that holds it.

    Raises:
        DrakkarError: unknown mode, strategy, hook or device; no driver, or nothing that could be given to a container.
    """
    _check(options)
    site = _Site(options)
    mode = site.mode()
    devices, common = _WAYS.get(mode, _one_device)(site, mode)
    common = msgspec.structs.replace(common, env=(*common.env, _NOT_BY_RUNTIME), mounts=(*common.mounts, _VOID))
    if not devices:
        raise DrakkarError(
            f"there is nothing for a container in mode {mode}" + (f": {'; '.join(site.notes)}" if site.notes else ""),
            reason="NoDevices",
            subject=options.driver_root,
            next_step="see that the driver is loaded and its nodes exist, or choose another --mode",
        )
    vendor, device_class = modes.KINDS[mode]
    spec = simplified(
        Spec(
            cdi_version=versions.LATEST,
            kind=f"{options.vendor or vendor}/{options.device_class or device_class}",
            devices=tuple(devices),
            container_edits=common,
        )
    )
    if options.all_device and "none" not in options.device_ids:
        spec = with_merged_device(spec)
    return Generated(msgspec.structs.replace(spec, cdi_version=versions.minimum_version(spec)), mode, tuple(site.notes))


def common_edits(machine: NvmlMachine, hooks: HookSet | None = None) -> dict[str, Any]:
    """What every container with a GPU of `machine` gets beside nodes: environment, files, hooks, as plain JSON.

    Where the host has no hook executable and we may not put ours there (:func:`own_hooks`), the links that hooks would
    make are mounts of the files that they lead to.

    Raises:
        DrakkarError: the driver's libraries are not below the driver root.
    """
    root = Root(machine.driver_root)
    driver = Driver(root, told=machine.driver_version, system_root=machine.system_root)
    own = hooks or _host_hooks(root) or own_hooks()
    found = _driver_files(driver, own or HookSet(), GenerateOptions())
    if own is None:
        found = _links_as_mounts(found, root)
    files = edits(found, root)
    spec = Spec(cdi_version=versions.LATEST, kind="nvidia.com/gpu", devices=(), container_edits=files)
    told = plain(simplified(spec))["containerEdits"]
    told["env"] = [*told.get("env", []), _NOT_BY_RUNTIME]
    for mount in told.get("mounts", []):
        mount["hostPath"] = machine.on_host(Path(mount["hostPath"]))
    return {key: value for key, value in told.items() if key in ("env", "mounts", "hooks")}


class _Site:
    """One host while its specification is made: its roots, and what was noticed on the way."""

    def __init__(self, options: GenerateOptions) -> None:
        self.options = options
        self.root = Root(options.driver_root or "/")
        self.devices = Root(options.device_root or self.root.path)
        self.notes: list[str] = []
        self._machine: NvmlMachine | None = None
        self._driver: Driver | None = None

    @property
    def machine(self) -> NvmlMachine:
        """The host's GPUs, looked at once."""
        if self._machine is None:
            options = self.options
            self._machine = NvmlMachine(
                "",
                Path(self.root.path),
                device_root=Path(self.devices.path),
                system_root=Path(options.system_root) if options.system_root else None,
                library_search=options.library_search,
            )
        return self._machine

    @property
    def driver(self) -> Driver:
        """The driver's files."""
        if self._driver is None:
            self._driver = Driver(
                self.root,
                told=self.machine.driver_version,
                library_search=self.options.library_search,
                config_search=self.options.config_search,
                system_root=self.machine.system_root,
            )
        return self._driver

    def mode(self) -> str:
        """The mode asked for; for `auto` what the host is: WSL2, a Jetson, else one with NVML."""
        if self.options.mode != "auto":
            return self.options.mode
        if self.root.find("libdxcore.so", ("/usr/lib/wsl/lib",)):
            return "wsl"
        integrated = any(word in gpu.model for gpu in self.machine.devices() for word in _INTEGRATED)
        if integrated or (tegra.is_tegra(Path(self.root.path)) and self.machine.library is None):
            return "csv"
        return "nvml"

    def edits(self, found: Found) -> ContainerEdits:
        """Edits as the options want them."""
        return edits(found, self.devices, groups=self.options.groups, numbers=self.options.numbers)

    def named(self, device: gpus.Chosen, found: Found) -> list[Device]:
        """One CDI device for each of a device's names."""
        own = self.edits(found)
        return [Device(name=name, container_edits=own) for name in device.names(self.options.strategies)]

    def all(self, found: Found) -> list[Device]:
        """The one device of a mode that has no more."""
        return [Device(name="all", container_edits=self.edits(found))]


def _check(options: GenerateOptions) -> None:
    options.hooks.check()
    for what, value, known in (
        ("mode", (options.mode,), MODES),
        ("device name strategy", options.strategies, gpus.STRATEGIES),
    ):
        for one in value:
            if one not in known:
                raise DrakkarError(
                    f"there is no {what} {one!r}",
                    reason="InvalidOption",
                    subject=one,
                    expected="one of " + ", ".join(known),
                )
    if not Path(options.driver_root or "/").is_dir():
        raise DrakkarError("the driver root is not a directory", reason="NoDriverRoot", subject=options.driver_root)


def _installed(driver: Driver, hooks: HookSet, options: GenerateOptions) -> Found:
    """Libraries, sockets, firmware and programs."""
    found = driver.libraries_found(hooks, explicit=options.explicit_libraries)
    if options.sockets:
        found += driver.sockets()
    return found + driver.firmware() + driver.programs()


def _driver_files(driver: Driver, hooks: HookSet, options: GenerateOptions) -> Found:
    """What every GPU container gets of a driver installation."""
    profile = Found(hooks=hooks.make(UPDATE_APPLICATION_PROFILE))
    return graphics_found(driver, hooks) + _installed(driver, hooks, options) + profile


def _host_hooks(root: Root) -> HookSet | None:
    """The hooks of the host's own executable; None where it has none."""
    found = root.programs("nvidia-cdi-hook")
    return HookSet(path=root.relative(found[0])) if found else None


def own_hooks() -> HookSet | None:
    """The hooks of our static program, put into $DRAKKAR_HOOK_DIR of the host; None where that is not possible."""
    from drakkar.hooks import program

    folder = os.environ.get("DRAKKAR_HOOK_DIR", "")
    try:
        path = program.put_on_host(folder, program.IMAGE_FOLDER) if folder.startswith("/") else ""
    except OSError:
        return None
    return HookSet(path=path) if path else None


def _links_as_mounts(found: Found, root: Root) -> Found:
    """The same without hooks: every link that one would make is a mount of the file it leads to on the host."""
    files: dict[str, str] = {}
    for hook in found.hooks:
        for word in hook.args:
            target, separator, link = word.partition("::")
            if separator:
                start = target if target.startswith("/") else f"{posixpath.dirname(link)}/{target}"
                files.setdefault(link, root.resolve(root.host(posixpath.normpath(start))))
    taken = {mount.container_path for mount in found.mounts}
    more = tuple(
        Mount(host_path=host, container_path=link, options=MOUNT_OPTIONS)
        for link, host in files.items()
        if link not in taken and is_file(host)
    )
    return Found(nodes=found.nodes, mounts=(*found.mounts, *more), env=found.env)


_Answer = tuple[Sequence[Device], ContainerEdits]


def _nvml(site: _Site, mode: str) -> _Answer:
    options, machine = site.options, site.machine
    empty = "none" in options.device_ids
    if not machine.devices() and not empty:
        reasons = "; ".join(fault.message for fault in machine.faults())
        raise DrakkarError(
            f"no GPU can be given to containers: {reasons}",
            reason="NoDevices",
            subject=options.driver_root,
            next_step="load the driver, name its root with --driver-root, or wait for it with drakkar cdi watch",
        )
    common = site.edits(
        character_devices(site.devices, _CONTROL_NODES) + _driver_files(site.driver, options.hooks, options)
    )
    if empty:
        return [Device(name="none", container_edits=ContainerEdits(env=_NOTHING))], common
    if machine.library is None:
        site.notes.append("libnvidia-ml.so.1 cannot be used: the GPUs are the kernel module's, without MIG devices")
    lost = [gpu for gpu in machine.devices() if gpu.lost]
    site.notes += [f"GPU {gpu.index} ({gpu.bus_id}) has fallen off the bus: left out" for gpu in lost]
    chosen = gpus.selected(machine.devices(), options.device_ids)
    devices: list[Device] = []
    for one in chosen:
        found = gpus.found_for(one, site.devices, machine.system_root, options.hooks, site.root.path)
        if found.nodes:
            devices += site.named(one, found)
        else:
            site.notes.append(f"{one.index} ({one.uuid}) has no device node below {site.devices.path}: left out")
    return devices, common


def _management(site: _Site, mode: str) -> _Answer:
    hooks = site.options.hooks
    without = replace(hooks, disabled=(*hooks.disabled, DISABLE_DEVICE_NODE_MODIFICATION))
    found = _installed(site.driver, without, site.options) + modes.management_libraries(site.driver)
    return site.all(modes.management(site.devices, without)), site.edits(found)


def _csv(site: _Site, mode: str) -> _Answer:
    options, machine = site.options, site.machine
    listed = tegra.listed(site.root, options.csv_files, options.csv_ignore)
    compatibility: list[str] | None = None
    if machine.library is not None:
        version = machine.library.cuda_version()
        compatibility = [f"--host-cuda-version={version}"] if version else []
        if any(_ORIN in gpu.model for gpu in machine.devices()):
            compatibility.append(f"--cuda-compat-container-root={options.csv_compat_root}")
    search = options.library_search
    common = site.edits(tegra.files_found(site.root, listed, options.hooks, search=search, compatibility=compatibility))
    release = mounts(site.root, site.root.find("/etc/nv_tegra_release"))
    if machine.library is None or len(machine.devices()) < 2:
        found = tegra.device_nodes(site.devices, listed.devices) + release
        names = [name for name in options.strategies if name != "uuid"] or ["index"]
        known = {"index": "0", "type-index": "gpu0"}
        own = site.edits(found)
        return [Device(name=known[name], container_edits=own) for name in names], common
    devices: list[Device] = []
    for one in gpus.selected(machine.devices(), options.device_ids):
        integrated = any(word in one.gpu.model for word in _INTEGRATED) or one.gpu.bus_id == "0000:01:00.0"
        if integrated:
            found = tegra.device_nodes(site.devices, tegra.integrated_nodes(listed)) + release
        else:
            found = gpus.found_for(one, site.devices, machine.system_root, options.hooks, site.root.path)
            found += tegra.device_nodes(site.devices, tegra.discrete_nodes(listed)) + release
        devices += site.named(one, found)
    return devices, common


def _wsl(site: _Site, mode: str) -> _Answer:
    common = site.edits(modes.wsl_files(site.root, site.options.hooks))
    if "none" in site.options.device_ids:
        return [Device(name="none", container_edits=ContainerEdits(env=_NOTHING))], common
    found = modes.wsl_device(site.devices)
    return (site.all(found) if found.nodes else []), common


def _imex(site: _Site, mode: str) -> _Answer:
    channels = modes.imex_channels(site.devices, site.options.device_ids)
    named = []
    for number, path in channels.items():  # without numbers, as the toolkit has them: the driver may hand out others
        node = DeviceNode(path=site.devices.relative(path), host_path=path)
        named.append(Device(name=number, container_edits=ContainerEdits(device_nodes=(node,))))
    return named, ContainerEdits()


def _mig_capabilities(site: _Site, mode: str) -> _Answer:
    found = modes.mig_capabilities(site.devices, site.machine.system_root, site.options.device_ids)
    return [Device(name=name, container_edits=site.edits(one)) for name, one in found.items()], ContainerEdits()


def _one_device(site: _Site, mode: str) -> _Answer:
    return site.all(modes.one_device(mode, site.root, site.devices)), ContainerEdits()


_WAYS: Mapping[str, Callable[[_Site, str], _Answer]] = {
    "nvml": _nvml,
    "management": _management,
    "csv": _csv,
    "wsl": _wsl,
    "imex": _imex,
    "mig-caps": _mig_capabilities,
}
