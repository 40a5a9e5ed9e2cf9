"""`drakkar cdi doctor`: why a device does not resolve, or why a container that has it would not start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from drakkar.cli.cdi import options
from drakkar.cli.cdi.sources import open_cache
from drakkar.cli.options import emit


@click.command("doctor")
@click.argument("name", default="")
@options.directories
@click.option("--driver-root", default="", metavar="DIR", help="Where the driver's files are on this machine now.")
@click.option("--containerd-config", default="", metavar="FILE", help="Instead of /etc/containerd/config.toml.")
@click.option("--crio-config", default="", metavar="FILE", help="Instead of /etc/crio/crio.conf.")
@click.option("--docker-config", default="", metavar="FILE", help="Instead of /etc/docker/daemon.json.")
@click.option("--podman-config", default="", metavar="FILE", help="Instead of /etc/containers/containers.conf.")
@click.option(
    "--runtime-version", "versions", multiple=True, metavar="NAME=VERSION", help="E.g. containerd=1.7.27; repeatable."
)
@click.option("--consumer", default="", metavar="VERSION", help="The newest CDI version that the consumer reads.")
@click.option("--root", default="", metavar="DIR", help="A directory that stands for the machine, e.g. /host.")
@options.output
def command(
    name: str,
    directories: tuple[Path, ...],
    driver_root: str,
    containerd_config: str,
    crio_config: str,
    docker_config: str,
    podman_config: str,
    versions: tuple[str, ...],
    consumer: str,
    root: str,
    output: str,
) -> None:
    """Say why the device NAME does not resolve or a container with it would not start; without NAME, for all.

    Compares the specifications with each other, with the configuration of containerd, CRI-O, Docker and Podman, and
    with this machine: device nodes and their numbers, libraries, hooks, MIG instances, SELinux. Exits with 1 if
    something is wrong. Nothing is changed.
    """
    from drakkar.injection.cache import DEFAULT_DIRECTORIES
    from drakkar.injection.doctor import examine, summary
    from drakkar.injection.host_findings import ERROR, RealHost
    from drakkar.injection.runtimes import read_host
    from drakkar.vendors.nvidia.mig_presence import missing_instance

    root = os.path.abspath(root).rstrip("/") if root else ""  # noqa: PTH100 - lexical, links stay
    host = RealHost(root)
    files = {
        "containerd": containerd_config,
        "crio": crio_config,
        "docker": docker_config,
        "podman": podman_config,
    }
    given = {runtime: file for runtime, file in files.items() if file}
    runtimes, unreadable = read_host(_reader(host, given), host.matching, given, _versions(versions))
    places = directories or tuple(Path(root + directory) for directory in DEFAULT_DIRECTORIES)
    with open_cache(places) as cache:
        findings = examine(
            cache,
            host,
            name=name,
            runtimes=runtimes,
            consumer_version=_known_version(consumer),
            root=root,
            driver_root=driver_root,
            inspectors=[missing_instance],
        )
        count = len(cache.devices())
    rows = [finding.to_dict() for finding in findings]
    rows += [_unreadable(error.message, error.file) for error in unreadable]
    if output != "table":
        looked = {"devices": count, "directories": [str(place) for place in places]}
        looked["runtimes"] = [f"{each.runtime} ({each.source})" for each in runtimes]
        emit({"lookedAt": looked, "findings": rows}, output)
    else:
        for row in rows:
            place = row.get("file", "")
            click.echo(f"{row['level']}: {row['message']}")
            click.echo(f"  fix: {row['fix']}")
            if place and place not in row["message"]:
                click.echo(f"  file: {place}")
        seen = ", ".join(each.runtime for each in runtimes) or "no runtime's configuration found"
        click.echo(f"{count} device{'s' * (count != 1)}, {seen}: {summary(findings)}")
    bad = bool(unreadable) or any(finding.level == ERROR for finding in findings)
    raise click.exceptions.Exit(1 if bad else 0)


def _reader(host: Any, given: dict[str, str]) -> Any:
    """Files that somebody named are read as named, others below the machine's root."""

    def text(path: str) -> str | None:
        if path not in given.values():
            found: str | None = host.text(path)
            return found
        try:
            return Path(path).read_text(errors="replace")
        except OSError:
            return None

    return text


def _versions(given: tuple[str, ...]) -> dict[str, str]:
    from drakkar.injection.runtimes import RUNTIMES

    found = {}
    for text in given:
        runtime, _, version = text.partition("=")
        if runtime not in RUNTIMES or not version:
            raise click.BadParameter(f"{text!r} is not NAME=VERSION with one of {', '.join(RUNTIMES)}")
        found[runtime] = version
    return found


def _known_version(text: str) -> str:
    from drakkar.injection.versions import VERSIONS

    version = text.removeprefix("v")
    if version and version not in VERSIONS:
        raise click.BadParameter(f"{text!r} is no version of the specification; there are {', '.join(VERSIONS)}")
    return version


def _unreadable(message: str, file: str) -> dict[str, str]:
    fix = "correct the file, the runtime does not start with it either; `containerd config dump` shows what it reads"
    return {
        "code": "runtime-config",
        "level": "error",
        "subject": file,
        "message": message,
        "fix": fix,
        "file": file,
    }
