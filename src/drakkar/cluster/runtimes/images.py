"""Images without a registry: OCI layout folders, and the host's own file system for every other name.

An image is found by its name among the `index.json` of the given OCI layout folders (annotations
`org.opencontainers.image.ref.name` and containerd's `io.containerd.image.name`). Any other name runs on the host's
files, which is what makes `image: ubuntu` work on a laptop without network; since nobody can know the entrypoint of an
image that is not there, shells get a shell and everything else waits for SIGTERM, and the container says so.

OCI image specification 1.1 (layout, index, manifest, configuration).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from drakkar.errors import DrakkarError

_WAIT: Final = ("/bin/sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 86400 & wait $!; done")
_SHELLS: Final = frozenset(
    {
        "alpine",
        "amazonlinux",
        "archlinux",
        "bash",
        "busybox",
        "centos",
        "cuda",
        "debian",
        "fedora",
        "oraclelinux",
        "python",
        "rockylinux",
        "ubi8",
        "ubi9",
        "ubuntu",
    }
)
_REGISTRY_PREFIX: Final = "docker.io/"
_LIBRARY_PREFIX: Final = "docker.io/library/"


@dataclass(frozen=True, slots=True)
class Image:
    """What an image says about its containers. `layers` are tar archives, bottom first; empty for the host's files."""

    name: str
    id: str
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = ""
    uid: int = 0
    gid: int = 0
    layers: tuple[Path, ...] = ()
    stand_in: bool = False


class ImageStore:
    """The images of some OCI layout folders (read at each look-up, so a folder may grow)."""

    def __init__(self, layouts: Sequence[Path] = ()) -> None:
        self.layouts = tuple(layouts)

    def find(self, name: str) -> Image:
        """The image of that name; never fails for an unknown one. Raises `DrakkarError` for a damaged layout."""
        for layout in self.layouts:
            for descriptor in _read(layout / "index.json").get("manifests", []):
                annotations = descriptor.get("annotations") or {}
                names = {
                    annotations.get("org.opencontainers.image.ref.name"),
                    annotations.get("io.containerd.image.name"),
                }
                if any(candidate and normalised(candidate) == normalised(name) for candidate in names):
                    return _image(layout, name, descriptor)
        return host_image(name)


def host_image(name: str) -> Image:
    """The host's own files under another name."""
    short = name.rsplit("/", 1)[-1].partition("@")[0].partition(":")[0]
    command = ("/bin/sh",) if short in _SHELLS else _WAIT
    return Image(normalised(name), f"host://{normalised(name)}", command=command, stand_in=True)


def normalised(name: str) -> str:
    """The full reference that Kubernetes shows: registry, path, and `:latest` where no tag is given."""
    first, _, rest = name.partition("/")
    if not rest:
        name = _LIBRARY_PREFIX + name
    elif "." not in first and ":" not in first and first != "localhost":
        name = _REGISTRY_PREFIX + name
    last = name.rsplit("/", 1)[-1]
    return name if ":" in last or "@" in last else f"{name}:latest"


def _image(layout: Path, name: str, descriptor: dict[str, Any]) -> Image:
    manifest = _read(_blob(layout, descriptor["digest"]))
    if "manifests" in manifest:
        manifest = _read(_blob(layout, manifest["manifests"][0]["digest"]))
    document = _read(_blob(layout, manifest["config"]["digest"]))
    config = document.get("config") or {}
    user, _, group = str(config.get("User") or "0").partition(":")
    if not user.isdigit() or (group and not group.isdigit()):
        raise DrakkarError(
            f"image {name} runs as {config['User']!r}, a name that only its own /etc/passwd knows",
            reason="UnsupportedImageUser",
            subject=str(layout),
            expected="a numeric user",
            next_step="set securityContext.runAsUser in the pod",
        )
    env = dict(entry.partition("=")[::2] for entry in config.get("Env") or [])
    return Image(
        normalised(name),
        manifest["config"]["digest"],
        tuple(config.get("Entrypoint") or ()),
        tuple(config.get("Cmd") or ()),
        env,
        config.get("WorkingDir") or "",
        int(user),
        int(group or 0),
        tuple(_blob(layout, layer["digest"]) for layer in manifest.get("layers", [])),
    )


def _blob(layout: Path, digest: str) -> Path:
    algorithm, _, value = digest.partition(":")
    if not algorithm.isalnum() or not value.isalnum():
        raise _damaged(layout, f"digest {digest!r}")
    return layout / "blobs" / algorithm / value


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _damaged(path, str(error)) from error
    if not isinstance(document, dict):
        raise _damaged(path, "not a JSON object")
    return document


def _damaged(path: Path, what: str) -> DrakkarError:
    return DrakkarError(
        f"OCI layout cannot be read: {what}",
        reason="DamagedImageLayout",
        subject=str(path),
        expected="an OCI image layout (index.json and blobs/)",
        next_step="write the image again, e.g. with `skopeo copy … oci:FOLDER:NAME`",
    )
