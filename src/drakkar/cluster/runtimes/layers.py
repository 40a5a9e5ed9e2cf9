"""Unpack the layers of an OCI image once, into one directory per image.

The archives come from outside, so names are resolved inside the target only (Python's `tar` filter refuses absolute
names, parent references and links that leave the tree), and a half-unpacked image is never used: it gets its final name
when it is complete.

OCI image specification, layer file system changesets (`.wh.` whiteouts, `.wh..wh..opq`).
"""

from __future__ import annotations

import asyncio
import shutil
import tarfile
from pathlib import Path

from drakkar.cluster.runtimes.images import Image
from drakkar.errors import DrakkarError

_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"


async def unpack(image: Image, folder: Path) -> Path:
    """The directory with the files of `image`, made on first use. Raises `DrakkarError` for a damaged layer."""
    target = folder / image.id.replace(":", "-")
    if not target.is_dir():
        await asyncio.to_thread(_unpack, image, target)
    return target


def _unpack(image: Image, target: Path) -> None:
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        for layer in image.layers:
            _apply(layer, partial)
    except (tarfile.TarError, OSError, EOFError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise DrakkarError(
            f"a layer of image {image.name} cannot be unpacked: {error}",
            reason="DamagedImageLayer",
            subject=image.id,
            expected="a tar archive, plain or compressed with gzip",
            next_step="write the image again",
        ) from error
    partial.rename(target)


def _apply(layer: Path, target: Path) -> None:
    with tarfile.open(layer) as archive:
        members = archive.getmembers()
        # Whiteouts speak of the layers below, so they come before this layer's own files.
        for member in members:
            path = Path(member.name)
            if path.name == _OPAQUE:
                _clear(_inside(target, path.parent))
            elif path.name.startswith(_WHITEOUT):
                _delete(_inside(target, path.with_name(path.name.removeprefix(_WHITEOUT))))
        for member in members:
            if Path(member.name).name.startswith(_WHITEOUT) or member.ischr() or member.isblk():
                continue
            existing = _inside(target, Path(member.name))
            if not member.isdir() and (existing.is_symlink() or existing.exists()):
                _delete(existing)
            archive.extract(member, target, filter="tar")


def _inside(target: Path, name: Path) -> Path:
    """The path below `target`; links on the way (`lib -> usr/lib`) are fine as long as they stay inside."""
    path = target / name
    if name.is_absolute() or ".." in name.parts or not path.parent.resolve().is_relative_to(target.resolve()):
        raise OSError(f"name {str(name)!r} leaves the image")
    return path


def _clear(directory: Path) -> None:
    if directory.is_dir() and not directory.is_symlink():
        for child in directory.iterdir():
            _delete(child)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
