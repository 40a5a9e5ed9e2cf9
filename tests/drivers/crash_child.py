"""Drivers that are killed, the Nth at its Nth touch of the world. Run as: crash_child.py FOLDER KIND [WITHOUT].

Touches are counted where the world is touched and nowhere else: writes and barriers of the journal, CDI files made,
written, renamed and removed, files about devices likewise, MIG instances made and destroyed, compute modes set, MPS
daemons started, asked and their folders removed, modules loaded, functions of the PCI bus locked, overridden, unbound
and bound. Each driver is a process of its own with a folder of its own, FOLDER/N, and ends right before its Nth touch,
with status 137 and without any clean-up; the first that has fewer touches ends the series. The number of those that
were killed is printed.

WITHOUT takes something out that guards a prepare, to see that the series finds it missing: `intent`, the record that is
written before anything is touched, or `notes`, what it says of the hardware as it was.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "inventory")]

from gpu_node import GpuNode  # noqa: E402

from drakkar.preparation.claims import ClaimLedger  # noqa: E402
from drakkar.preparation.journal import Journal  # noqa: E402
from drakkar.preparation.values import ClaimRef, ClaimUID  # noqa: E402
from drakkar.vendors.nvidia.published import PublishOptions  # noqa: E402
from drakkar.vendors.nvidia.simulated import SimulatedMachine  # noqa: E402
from drakkar.vendors.nvidia.simulated_pci import SimulatedBus  # noqa: E402

DEVICES = {
    "gpu": "gpu-1",
    "mig": "gpu-0-mig-1g10gb-19-2",
    "mps": "gpu-2",
    "share": "gpu-4",
    "told": "gpu-3",
    "vfio": "gpu-vfio-0",
}
#: What a claim has of a device: a share of its memory that MPS enforces.
SHARES = {"share": {"shareID": "s1", "consumedCapacity": {"memory": "10Gi"}}}
#: The other function of the card that is passed through.
AUDIO = "0000:00:1e.1"
SHARED = {
    "apiVersion": "resource.nvidia.com/v1beta1",
    "kind": "GpuConfig",
    "sharing": {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 30}},
}
UID = "11111111-2222-3333-4444-555555555555"
REF = ClaimRef(ClaimUID(UID), "c", "team-a")


def node(folder: Path, kind: str) -> GpuNode:
    """The node of the story, with the claim in its API."""
    options = PublishOptions(dynamic_mig=kind in ("gpu", "mig"), passthrough=kind == "vfio")
    if kind == "share":
        options = PublishOptions(shares="memory", enforcement="mps")
    model = "t4" if kind == "vfio" else "dgx-h100"
    one = GpuNode(folder, model, options=options, device_metadata=kind == "told")
    one.claim("c", DEVICES[kind], configs=[SHARED] if kind == "mps" else None, **SHARES.get(kind, {}))
    one.api.objects["/apis/resource.k8s.io/v1/namespaces/team-a/resourceclaims/c"]["metadata"]["uid"] = UID
    return one


class Killer:
    """Ends the process at the touch that was asked for."""

    def __init__(self, when: int) -> None:
        self.when = when
        self.seen = 0

    def around(self, function: Callable[..., Any], ours: Callable[..., bool]) -> Callable[..., Any]:
        def touched(*arguments: Any, **options: Any) -> Any:
            if ours(*arguments):
                self.seen += 1
                if self.seen == self.when:
                    os._exit(137)
            return function(*arguments, **options)

        return touched


def arm(killer: Killer, folder: Path) -> None:
    def always(*_: Any) -> bool:
        return True

    def in_folder(path: Any, *_: Any) -> bool:
        return str(path).startswith((str(folder / "cdi"), str(folder / "state"), str(folder / "p")))

    def of_file(descriptor: int, *_: Any) -> bool:
        return in_folder(Path(f"/proc/self/fd/{descriptor}").readlink())

    def made(path: Any, flags: int, *_: Any) -> bool:
        return bool(flags & os.O_CREAT) and in_folder(path)

    os.open = killer.around(os.open, made)
    os.write = killer.around(os.write, of_file)
    os.fdatasync = killer.around(os.fdatasync, of_file)
    os.rename = killer.around(os.rename, in_folder)
    os.replace = killer.around(os.replace, in_folder)
    Path.replace = killer.around(Path.replace, in_folder)  # type: ignore[method-assign]
    Path.unlink = killer.around(Path.unlink, in_folder)  # type: ignore[method-assign]
    shutil.rmtree = killer.around(shutil.rmtree, in_folder)  # type: ignore[assignment]
    subprocess.Popen.__init__ = killer.around(subprocess.Popen.__init__, always)  # type: ignore[method-assign]
    for name in ("create_mig", "destroy_mig", "set_mig_mode", "set_exclusive", "set_persistence"):
        setattr(SimulatedMachine, name, killer.around(getattr(SimulatedMachine, name), always))
    for name in ("store", "load_module"):
        setattr(SimulatedBus, name, killer.around(getattr(SimulatedBus, name), always))


def take_out(what: str) -> None:
    """Go without something that guards a prepare."""
    if what == "intent":

        async def unwritten(*_: Any) -> None:
            return None

        Journal.append = unwritten  # type: ignore[method-assign]
    elif what == "notes":
        complete = ClaimLedger.begin

        def begin(ledger: ClaimLedger, *arguments: Any, detail: Any, **options: Any) -> Any:
            return complete(ledger, *arguments, detail={**detail, "notes": {}}, **options)

        ClaimLedger.begin = begin  # type: ignore[method-assign]


async def live(folder: Path, when: int, kind: str, without: str) -> None:
    """A driver's life, without its sockets: prepare one claim and unprepare it."""
    one = node(folder, kind)
    one.build()
    if kind == "vfio":
        gpu = one.machine.gpus()[0].bus_id
        one.machine.bus.add_function(gpu, AUDIO, kind="0x040300", driver="snd_hda_intel")
    take_out(without)
    inner = one.driver._node
    await inner._recover()
    arm(Killer(when), folder)
    prepared = (await inner.prepare([REF]))[REF.uid]
    assert not prepared.error, prepared.error
    error = (await inner.unprepare([REF]))[REF.uid]
    assert not error, error


def main(folder: Path, kind: str, without: str = "") -> None:
    point = 1
    while True:
        own = folder / str(point)
        own.mkdir()
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(live(own, point, kind, without))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != 137:
            break
        point += 1
    print(point - 1)
    sys.exit(code)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
