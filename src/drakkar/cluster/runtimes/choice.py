"""`--runtime auto`: runc where it can work, otherwise plain processes, and a clear error where a wish cannot be met."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from drakkar.cluster.behaviours import Rule
from drakkar.cluster.runtimes import NAMES
from drakkar.cluster.runtimes.images import ImageStore
from drakkar.cluster.runtimes.runtime import Runtime
from drakkar.errors import DrakkarError
from drakkar.kube.chance import Chance
from drakkar.kube.clock import Clock
from drakkar.kube.simulated import simulated


def choose_runtime(
    wish: str,
    root: Path,
    *,
    layouts: Sequence[Path] = (),
    hidden: Sequence[str] = (),
    program: str = "runc",
    clock: Clock | None = None,
    chance: Chance | None = None,
    rules: Sequence[Rule] = (),
) -> Runtime:
    """The runtime for `wish` (one of `NAMES`), keeping its state below `root`; call `open()` before use.

    `auto` is runc where it can work, otherwise process; where `clock` is simulated it is simulated, since processes
    take real time. `layouts` are OCI image layout folders; `hidden` are shell patterns of host files that no container
    may see; `rules` and `chance` are for simulated containers. Raises `DrakkarError` if runc was asked for and cannot
    work here.
    """
    from drakkar.cluster.runtimes.runc import RuncRuntime, unavailable

    if wish not in NAMES:
        raise DrakkarError(
            f"unknown runtime {wish!r}", reason="UnknownRuntime", expected=" or ".join(NAMES), subject="--runtime"
        )
    for layout in layouts:
        if not (layout / "index.json").is_file():
            raise DrakkarError(
                "there is no OCI image layout",
                reason="NoImageLayout",
                subject=f"--image-layout {layout}",
                expected="a folder with index.json, oci-layout and blobs",
                next_step="make one with `skopeo copy docker://… oci:FOLDER:NAME` or `docker buildx build -o type=oci`",
            )
    images = ImageStore(layouts)
    if wish == "simulated" or (wish == "auto" and clock is not None and simulated(clock) is not None):
        from drakkar.cluster.runtimes.simulated import SimulatedRuntime

        return SimulatedRuntime(root, images=images, clock=clock, chance=chance, rules=rules)
    refusal = unavailable(program)
    if wish == "runc" and refusal is not None:
        raise refusal
    if wish == "process" or refusal is not None:
        from drakkar.cluster.runtimes.process import ProcessRuntime

        return ProcessRuntime(root, images=images, clock=clock)
    return RuncRuntime(root, images=images, program=program, hidden=hidden, clock=clock)
