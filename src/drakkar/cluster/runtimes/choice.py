"""`--runtime auto`: runc where it can work, otherwise plain processes, and a clear error where a wish cannot be met."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from drakkar.cluster.runtimes.images import ImageStore
from drakkar.cluster.runtimes.runtime import Runtime
from drakkar.errors import DrakkarError

NAMES: Final = ("auto", "runc", "process")


def choose_runtime(
    wish: str, root: Path, *, layouts: Sequence[Path] = (), hidden: Sequence[str] = (), program: str = "runc"
) -> Runtime:
    """The runtime for `wish` (auto, runc or process), keeping its state below `root`; call `open()` before use.

    `layouts` are OCI image layout folders; `hidden` are shell patterns of host files that no container may see. Raises
    `DrakkarError` if runc was asked for and cannot work here.
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
    refusal = unavailable(program)
    if wish == "runc" and refusal is not None:
        raise refusal
    if wish == "process" or refusal is not None:
        from drakkar.cluster.runtimes.process import ProcessRuntime

        return ProcessRuntime(root, images=images)
    return RuncRuntime(root, images=images, program=program, hidden=hidden)
