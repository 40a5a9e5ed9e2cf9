"""`drakkar cdi run`: a container that has devices, to see what an injection does; a real one, by runc."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from drakkar.cli.cdi import options


@click.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@options.devices
@options.directories
@click.option(
    "--image",
    default="host",
    show_default=True,
    metavar="DIR|host",
    help="A folder with an OCI image layout, DIR:NAME for one of several images; host: this machine's own files.",
)
@click.option("-e", "--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable of the container.")
@click.option("--user", default="", metavar="UID[:GID]", help="Who the process is; root by default.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--] [COMMAND [ARG]...]")
def command(
    devices: tuple[str, ...],
    directories: tuple[Path, ...],
    image: str,
    variables: tuple[str, ...],
    user: str,
    words: tuple[str, ...],
) -> None:
    """Start a container with the given devices, run COMMAND in it and exit with its status.

    Needs root and runc. Without COMMAND the image's own runs, or a shell. What the container writes is thrown away.
    """
    env = dict(variable.partition("=")[::2] for variable in variables)
    uid, _, gid = user.partition(":")
    if user and not (uid.isdigit() and (not gid or gid.isdigit())):
        raise click.BadParameter(f"{user!r} is not UID or UID:GID", param_hint="--user")
    code = asyncio.run(_run(devices, directories, image, env, (int(uid or 0), int(gid or 0)), words))
    raise click.exceptions.Exit(code)


async def _run(
    devices: tuple[str, ...],
    directories: tuple[Path, ...],
    image: str,
    env: dict[str, str],
    user: tuple[int, int],
    words: tuple[str, ...],
) -> int:
    from drakkar.cluster.runtimes.images import ImageStore
    from drakkar.cluster.runtimes.runc import RuncRuntime
    from drakkar.cluster.runtimes.runtime import ContainerRequest, User
    from drakkar.injection.cache import DEFAULT_DIRECTORIES

    layouts, name = _image(image)
    with tempfile.TemporaryDirectory(prefix="drakkar-cdi-run-") as folder:
        runtime = RuncRuntime(Path(folder), images=ImageStore(layouts))
        await runtime.open()
        try:
            request = ContainerRequest(
                id=f"drakkar-{os.getpid()}",
                name="cdi-run",
                image=name,
                log=Path(folder) / "log",
                command=words if words or layouts else ("/bin/sh",),
                env=env,
                cdi_devices=devices,
                cdi_dirs=[path.absolute() for path in directories] or [Path(each) for each in DEFAULT_DIRECTORIES],
                user=User(*user),
                tty=sys.stdin.isatty() and sys.stdout.isatty(),
            )
            record = await runtime.create(request)
            program = ["runc", "--root", f"{folder}/runc", "run", "--bundle", str(record.bundle), record.id]
            # runc itself hands over our streams, or a terminal; signals of the terminal reach it directly.
            return await asyncio.to_thread(_wait, program)
        finally:
            await runtime.close()


def _wait(program: list[str]) -> int:
    started = subprocess.Popen(program)
    while True:
        try:
            return started.wait()
        except KeyboardInterrupt:
            continue


def _image(text: str) -> tuple[list[Path], str]:
    """The layouts to look in, and the image's name; a layout with one image needs none."""
    if text == "host":
        return [], "host"
    from drakkar.errors import DrakkarError

    folder, name = Path(text), ""
    if not folder.is_dir() and ":" in text:
        place, _, name = text.partition(":")
        folder = Path(place)
    names = _names(folder)
    if name:
        return [folder], name
    if len(names) == 1:
        return [folder], names[0]
    raise DrakkarError(
        f"{folder} holds {len(names)} named images",
        reason="AmbiguousImage",
        subject=text,
        expected=f"DIR:NAME with one of {', '.join(names)}" if names else "an image with a name in index.json",
    )


def _names(folder: Path) -> list[str]:
    import json

    from drakkar.errors import DrakkarError

    try:
        index: Any = json.loads((folder / "index.json").read_bytes())
        manifests = index["manifests"]
        keys = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
        found = [next((each.get("annotations", {})[key] for key in keys if key in each.get("annotations", {})), "")
                 for each in manifests]  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DrakkarError(
            f"{folder} is no OCI image layout: {error}",
            reason="DamagedImageLayout",
            subject=str(folder),
            expected="a folder with index.json and blobs/, as `skopeo copy … oci:DIR:NAME` writes it",
        ) from None
    return [name for name in found if name]
