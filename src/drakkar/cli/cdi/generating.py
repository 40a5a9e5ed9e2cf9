"""The options that make a specification, shared by `generate` and `watch`, and what they make."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from drakkar.errors import DrakkarError

if TYPE_CHECKING:
    from drakkar.injection.spec import CdiSpec
    from drakkar.vendors.nvidia.cdi.hooks import HookSet

F = TypeVar("F", bound=Callable[..., Any])

_MODES = (
    "auto", "nvml", "management", "imex", "gds", "mofed", "gdrcopy", "nvswitch", "mig-caps", "wsl", "csv",
)  # fmt: skip
_STRATEGIES = ("index", "uuid", "type-index")
#: What AMD's users call them.
_ALSO = {"unique_id": "uuid", "unique-id": "uuid", "partition": "type-index"}
_FEATURES = ("enable-explicit-driver-libraries", "no-additional-gids-for-device-nodes", "disable-ipc-discoverer")


def _words(context: click.Context, option: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Each value of a repeatable option may itself be a list with commas, as nvidia-ctk takes it."""
    return tuple(word.strip() for one in value for word in one.split(",") if word.strip())


def _strategies(context: click.Context, option: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    words = tuple(_ALSO.get(word, word) for word in _words(context, option, value))
    for word in words:
        if word not in _STRATEGIES:
            raise click.BadParameter(f"{word!r} is not one of {', '.join(_STRATEGIES)}")
    return words


_OPTIONS = (
    click.option("--vendor", "maker", type=click.Choice(["nvidia", "amd"]), help="Whose GPUs; found out by default."),
    click.option(
        "--mode",
        "--discovery-mode",
        "mode", type=click.Choice(_MODES), default="auto", envvar="NVIDIA_CTK_CDI_GENERATE_MODE", show_default=True,
        help="What to make devices of (NVIDIA).",
    ),
    click.option(
        "--driver-root", default="/", envvar="NVIDIA_CTK_DRIVER_ROOT", show_default=True,
        help="Root of the driver's files.",
    ),
    click.option("--dev-root", default="", envvar="NVIDIA_CTK_DEV_ROOT", help="Root of /dev; the driver root else."),
    click.option("--sys-root", default="", help="Root of /proc and /sys; the driver root if they lie in it, else /."),
    click.option(
        "--device-name-strategy", "strategies", multiple=True, default=("index", "uuid"), callback=_strategies,
        metavar="index|uuid|type-index", help="How devices are named; each strategy gives every device one more name.",
    ),
    click.option(
        "--device-id", "--device-ids", "--device", "--devices", "device_ids", multiple=True, default=("all",),
        callback=_words, help="Only these devices, by index, UUID or 1:0 for MIG; none: an empty device.",
    ),
    click.option("--no-all-device", is_flag=True, help="No device `all`."),
    click.option(
        "--disable-hook", "--disable-hooks", "disabled", multiple=True, callback=_words,
        help="Leave a hook out, or all.",
    ),
    click.option(
        "--enable-hook", "--enable-hooks", "enabled", multiple=True, callback=_words,
        help="Write a hook that is off else.",
    ),
    click.option(
        "--nvidia-cdi-hook-path", "hook_path", default="", envvar="NVIDIA_CTK_CDI_HOOK_PATH",
        help="The hooks' executable; nvidia-cdi-hook on the PATH by default.",
    ),
    click.option("--ldconfig-path", default="", help="The ldconfig that the hooks run."),
    click.option("--library-search-path", "libraries", multiple=True, callback=_words, help="Where libraries lie."),
    click.option("--config-search-path", "configs", multiple=True, callback=_words, help="Where graphics files lie."),
    click.option("--csv-file", "--csv.file", "csv_files", multiple=True, callback=_words, help="CSV files (Jetson)."),
    click.option(
        "--csv-ignore-pattern", "--csv.ignore-pattern", "csv_ignore", multiple=True, callback=_words,
        help="Links of CSV files to leave out.",
    ),
    click.option("--cdi-vendor", default="", help="Vendor of the kind; by mode otherwise, mostly nvidia.com."),
    click.option("--class", "--cdi-class", "device_class", default="", help="Class of the kind; by mode otherwise."),
    click.option(
        "--feature-flag", "--feature-flags", "features", multiple=True, callback=_words, metavar="|".join(_FEATURES),
        help="Details of nvidia-ctk that can be switched.",
    ),
    click.option("--no-device-numbers", is_flag=True, help="Let the runtime read majors and minors at injection."),
    click.option("--max-cdi-version", default="", help="For runtimes that know the specification up to here."),
)  # fmt: skip


def generator_options(function: F) -> F:
    """All options of a generator."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True)
class Made:
    """A specification, how it was made, and what a reader should know."""

    spec: CdiSpec
    mode: str
    notes: tuple[str, ...]


def make(asked: dict[str, Any]) -> Made:
    """The specification that the options ask for; DrakkarError as the generators raise it."""
    from drakkar.injection.names import check_class, check_vendor
    from drakkar.injection.spec import CdiSpec

    for text, check in ((asked["cdi_vendor"], check_vendor), (asked["device_class"], check_class)):
        problem = check(text) if text else ""
        if problem:
            raise DrakkarError(problem, reason="InvalidName", subject=text, expected="letters and digits, as acme.com")
    roots = {name: os.path.abspath(asked[name]) for name in ("driver_root", "dev_root", "sys_root") if asked[name]}  # noqa: PTH100
    asked = asked | roots  # a runtime stands in another folder
    made = _amd(asked) if maker(asked) == "amd" else _nvidia(asked)
    spec = CdiSpec.from_object(made.spec.to_dict())
    if asked["max_cdi_version"]:
        spec = spec.downgraded(asked["max_cdi_version"].removeprefix("v"))
    return Made(spec, made.mode, made.notes)


def maker(asked: dict[str, Any]) -> str:
    """The vendor asked for, else the one whose kernel module or library the machine has."""
    if asked["maker"]:
        return str(asked["maker"])
    root = asked["driver_root"] or "/"
    amd = os.path.isdir(os.path.join(root, "sys/module/amdgpu/drivers/pci:amdgpu"))  # noqa: PTH112, PTH118
    return "amd" if amd and not os.path.isdir(os.path.join(root, "proc/driver/nvidia")) else "nvidia"  # noqa: PTH112, PTH118


def _nvidia(asked: dict[str, Any]) -> Made:
    from drakkar.injection.spec import CdiSpec
    from drakkar.vendors.nvidia.cdi.generate import GenerateOptions, generate

    for feature in asked["features"]:
        if feature not in _FEATURES:
            raise DrakkarError(
                f"there is no feature {feature!r}", reason="InvalidOption", expected="one of " + ", ".join(_FEATURES)
            )
    hooks, note = _hooks(asked)
    made = generate(
        GenerateOptions(
            mode=asked["mode"],
            driver_root=asked["driver_root"],
            device_root=asked["dev_root"],
            system_root=asked["sys_root"],
            strategies=asked["strategies"],
            device_ids=asked["device_ids"],
            all_device=not asked["no_all_device"],
            vendor=asked["cdi_vendor"],
            device_class=asked["device_class"],
            hooks=hooks,
            library_search=asked["libraries"],
            config_search=asked["configs"],
            csv_files=asked["csv_files"],
            csv_ignore=asked["csv_ignore"],
            explicit_libraries="enable-explicit-driver-libraries" in asked["features"],
            sockets="disable-ipc-discoverer" not in asked["features"],
            groups="no-additional-gids-for-device-nodes" not in asked["features"],
            numbers=not asked["no_device_numbers"],
        )
    )
    has_hooks = any(e.hooks for e in (made.spec.container_edits, *(d.container_edits for d in made.spec.devices)))
    notes = (*made.notes, note) if note and has_hooks else made.notes
    return Made(CdiSpec(made.spec), made.mode, notes)


def _amd(asked: dict[str, Any]) -> Made:
    from drakkar.injection.spec import CdiSpec
    from drakkar.vendors.amd.cdi import GenerateOptions, generate

    spec, notes = generate(
        GenerateOptions(
            root=asked["sys_root"] or asked["driver_root"],
            device_root=asked["dev_root"],
            strategies=asked["strategies"],
            device_ids=asked["device_ids"],
            all_device=not asked["no_all_device"],
            vendor=asked["cdi_vendor"],
            device_class=asked["device_class"],
            groups="no-additional-gids-for-device-nodes" not in asked["features"],
            numbers=not asked["no_device_numbers"],
        )
    )
    return Made(CdiSpec(spec), "kfd", notes)


def _hooks(asked: dict[str, Any]) -> tuple[HookSet, str]:
    """The hooks, and a note where no executable for them was found."""
    from drakkar.vendors.nvidia.cdi.hooks import DEFAULT_PATH, HookSet

    given = asked["hook_path"]
    wanted = given if given and "/" in given else shutil.which(given or "nvidia-cdi-hook")
    note = ""
    if wanted is None:
        wanted = DEFAULT_PATH
        note = (
            f"there is no {given or 'nvidia-cdi-hook'} on the PATH: hooks name {wanted}, which must exist on the host"
        )
    hooks = HookSet(path=wanted, disabled=asked["disabled"], enabled=asked["enabled"], ldconfig=asked["ldconfig_path"])
    if "all" in hooks.enabled:
        raise DrakkarError("all hooks cannot be enabled at once", reason="InvalidOption", expected="names of hooks")
    return hooks, note
