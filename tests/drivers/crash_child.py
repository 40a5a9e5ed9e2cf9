"""A driver that is killed at its Nth touch of the world. Run as: crash_child.py FOLDER N ACTION.

Touches are counted where the world is touched and nowhere else: writes and barriers of the journal, CDI files written,
renamed and removed, MIG instances made and destroyed. The process ends before the Nth one, and after it when N is
negative, with status 137 and without any clean-up. Status 0: there were fewer touches.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "inventory")]

from gpu_node import GpuNode  # noqa: E402

from drakkar.preparation.values import ClaimRef, ClaimUID  # noqa: E402
from drakkar.vendors.nvidia.published import PublishOptions  # noqa: E402
from drakkar.vendors.nvidia.simulated import SimulatedMachine  # noqa: E402

DEVICES = {"gpu": "gpu-1", "mig": "gpu-0-mig-1g10gb-19-2"}
UID = "11111111-2222-3333-4444-555555555555"
REF = ClaimRef(ClaimUID(UID), "c", "team-a")


def node(folder: Path, kind: str) -> GpuNode:
    """The node of the story, with the claim in its API."""
    one = GpuNode(folder, options=PublishOptions(dynamic_mig=True))
    one.claim("c", DEVICES[kind])
    one.api.objects["/apis/resource.k8s.io/v1/namespaces/team-a/resourceclaims/c"]["metadata"]["uid"] = UID
    return one


class Killer:
    """Ends the process at the touch that was asked for."""

    def __init__(self, when: int) -> None:
        self.when = abs(when)
        self.after = when < 0
        self.seen = 0

    def around(self, function: Callable[..., Any], ours: Callable[..., bool]) -> Callable[..., Any]:
        def touched(*arguments: Any, **options: Any) -> Any:
            if not ours(*arguments):
                return function(*arguments, **options)
            self.seen += 1
            if self.seen == self.when and not self.after:
                os._exit(137)
            result = function(*arguments, **options)
            if self.seen == self.when:
                os._exit(137)
            return result

        return touched


def arm(killer: Killer, folder: Path) -> None:
    def always(*_: Any) -> bool:
        return True

    def in_state(descriptor: int, *_: Any) -> bool:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith(str(folder / "state"))

    def in_folder(path: Any, *_: Any) -> bool:
        return str(path).startswith((str(folder / "cdi"), str(folder / "state")))

    os.write = killer.around(os.write, in_state)
    os.fdatasync = killer.around(os.fdatasync, in_state)
    os.rename = killer.around(os.rename, in_folder)
    Path.replace = killer.around(Path.replace, in_folder)  # type: ignore[method-assign]
    Path.unlink = killer.around(Path.unlink, in_folder)  # type: ignore[method-assign]
    for name in ("create_mig", "destroy_mig", "set_mig_mode"):
        setattr(SimulatedMachine, name, killer.around(getattr(SimulatedMachine, name), always))


async def main(folder: Path, when: int, kind: str) -> None:
    one = node(folder, kind)
    await one.start()
    arm(Killer(when), folder)
    inner = one.driver._node
    prepared = (await inner.prepare([REF]))[REF.uid]
    assert not prepared.error, prepared.error
    error = (await inner.unprepare([REF]))[REF.uid]
    assert not error, error
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
