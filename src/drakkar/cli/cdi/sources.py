"""Where the commands below `drakkar cdi` read from, and how what they found is printed; without click (see `quick`)."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from drakkar.cli.printing import emit, table
from drakkar.injection.cache import CdiCache
from drakkar.injection.parsed import ParsedFiles

if TYPE_CHECKING:
    from pathlib import Path


def open_cache(directories: Sequence[str | Path], **options: Any) -> CdiCache:
    """The devices of `directories` at this moment, none meaning the usual two; what was parsed before is not again."""
    return CdiCache([str(each) for each in directories], auto_refresh=False, kept=ParsedFiles.of_user(), **options)


def report(errors: dict[str, list[str]]) -> None:
    """Print what is wrong with the files to standard error."""
    for file, messages in sorted(errors.items()):
        for message in messages:
            print(message if file in message else f"{file}: {message}", file=sys.stderr)


def read_config(config: str | Path) -> dict[str, Any]:
    """The OCI configuration in a file, or on standard input for `-`.

    Raises:
        DrakkarError: unreadable, not JSON, or not an object.
    """
    from drakkar.errors import DrakkarError

    try:
        if str(config) == "-":
            text = sys.stdin.read()
        else:
            with open(config) as file:  # noqa: PTH123 - pathlib is not loaded for the quickest commands
                text = file.read()
        value = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise DrakkarError(
            f"cannot read the OCI configuration: {error}",
            subject=str(config),
            expected="a config.json as `runc spec` writes it",
        ) from error
    if not isinstance(value, dict):
        raise DrakkarError("the OCI configuration is not a JSON object", subject=str(config))
    return value


def print_devices(directories: Sequence[str | Path], output: str) -> None:
    """`drakkar cdi list`: the devices with their files; what is wrong with files goes to standard error."""
    with open_cache(directories) as cache:
        found = [each for name in cache.devices() if (each := cache.find(name))]
        report(cache.errors())
    if output == "table":
        table(["DEVICE", "FILE", "PRIORITY"], [[each.name, each.path, str(each.priority)] for each in found])
    else:
        emit([{"device": each.name, "file": each.path, "priority": each.priority} for each in found], output)


def print_injection(directories: Sequence[str | Path], devices: Sequence[str], config: str | Path) -> None:
    """`drakkar cdi inject`: the edited configuration; warnings go to standard error."""
    before = read_config(config)
    with open_cache(directories) as cache:
        after, warnings = cache.injection(before, devices)
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(json.dumps(after, indent=2))


def causes_of(cache: CdiCache, devices: Sequence[str]) -> list[Any]:
    """Every element that `devices` bring into a container, in request order (`drakkar.injection.causes`).

    Raises:
        DrakkarError: a name does not resolve.
    """
    from drakkar.injection.causes import causes

    found: list[Any] = []
    files: set[str] = set()
    for resolved in cache.resolve(devices):
        found += causes(resolved.spec, resolved.device.name, whole_file=resolved.path not in files)
        files.add(resolved.path)
    return found
