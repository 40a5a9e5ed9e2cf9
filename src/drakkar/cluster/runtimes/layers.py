"""Unpack the layers of an OCI image once, into one directory per image.

The archives come from outside, so every name is resolved the way a container would resolve it, with the image as the
root of all links, and files are created at the place that this gives: nothing can be written outside. A half-unpacked
image is never used: it gets its final name when it is complete. (Python's extraction filters would refuse links that
are normal in images, and Debian 12's Python has none.)

OCI image specification, layer file system changesets (`.wh.` whiteouts, `.wh..wh..opq`).
"""

from __future__ import annotations

import asyncio
import shutil
import tarfile
from copy import copy
from pathlib import Path, PurePosixPath
from typing import Final

from drakkar.cluster.runtimes.images import Image
from drakkar.errors import DrakkarError

_WHITEOUT: Final = ".wh."
_OPAQUE: Final = ".wh..wh..opq"
_MAX_LINKS: Final = 40


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
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
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
        archive.extraction_filter = _as_it_is
        members = archive.getmembers()
        # Whiteouts speak of the layers below, so they come before this layer's own files.
        for member in members:
            path = PurePosixPath(member.name)
            if path.name == _OPAQUE:
                _clear(target / _resolved(target, path.parent))
            elif path.name.startswith(_WHITEOUT):
                _delete(target / _resolved(target, path.with_name(path.name.removeprefix(_WHITEOUT))))
        for member in members:
            if PurePosixPath(member.name).name.startswith(_WHITEOUT) or member.ischr() or member.isblk():
                continue
            placed = copy(member)
            name = _resolved(target, PurePosixPath(member.name))
            if str(name) == ".":
                continue
            existing = target / name
            if not (member.isdir() and existing.is_dir() and not existing.is_symlink()):
                _delete(existing)
            placed.name = str(name)
            if member.islnk():
                placed.linkname = str(_resolved(target, PurePosixPath(member.linkname)))
            archive.extract(placed, target, numeric_owner=True)


def _as_it_is(member: tarfile.TarInfo, _path: str) -> tarfile.TarInfo:
    """The names are resolved already."""
    return member


def _resolved(target: Path, name: PurePosixPath) -> PurePosixPath:
    """`name` with every link on the way to it followed inside `target`; its last part is left as it is."""
    done: list[str] = []
    todo = [part for part in reversed(name.parts) if part not in ("/", ".")]
    links = 0
    while todo:
        part = todo.pop()
        if part == "..":
            done = done[:-1]
            continue
        path = target.joinpath(*done, part)
        if todo and path.is_symlink():
            links += 1
            if links > _MAX_LINKS:
                raise OSError(f"too many links on the way to {str(name)!r}")
            link = PurePosixPath(path.readlink())
            if link.is_absolute():
                done = []
            todo += [piece for piece in reversed(link.parts) if piece not in ("/", ".")]
            continue
        done.append(part)
    return PurePosixPath(*done)


def _clear(directory: Path) -> None:
    if directory.is_dir() and not directory.is_symlink():
        for child in directory.iterdir():
            _delete(child)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
