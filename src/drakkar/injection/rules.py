"""What makes a specification acceptable: the checks of the reference library 1.1.2 and, on request, of the text itself.

Every function yields problems with their path in the document, in the order of the reference library, so that the
first one is what its users would see. ``strict`` adds what SPEC.md says and the library does not check.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from .errors import Problem
from .model import ContainerEdits, Device, DeviceNode, Hook, IntelRdt, Mount, NetDevice, Spec
from .names import check_class, check_device, check_vendor, quote, split_kind
from .versions import check_version

__all__ = ["HOOK_NAMES", "edit_problems", "problems", "strict_problems"]

Path = tuple[str | int, ...]

HOOK_NAMES: Final = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
_NODE_TYPES: Final = frozenset({"", "b", "c", "u", "p"})
_PERMISSIONS: Final = frozenset("rwm")
MAX_CLOS_ID_BYTES: Final = 4096
MAX_ANNOTATION_BYTES: Final = 256 << 10


def problems(spec: Spec) -> Iterator[Problem]:
    """Everything the reference library would refuse, its first complaint first."""
    vendor, device_class = split_kind(spec.kind)
    for path, message in (
        (("cdiVersion",), check_version(spec)),
        (("kind",), check_vendor(vendor)),
        (("kind",), check_class(device_class)),
    ):
        if message:
            yield Problem(message, path)
    yield from edit_problems(spec.container_edits, ("containerEdits",))
    seen: set[str] = set()
    for index, device in enumerate(spec.devices):
        yield from _device_problems(device, ("devices", index))
        if device.name in seen:
            yield Problem(f"invalid spec, multiple device {quote(device.name)}", ("devices", index, "name"))
        seen.add(device.name)
    if not spec.devices:
        yield Problem("invalid spec, no devices", ("devices",))


def edit_problems(edits: ContainerEdits, path: Path = ()) -> Iterator[Problem]:
    """What is wrong with one block of edits; also used for the joined edits of an injection."""
    yield from _env_problems(edits.env, (*path, "env"), "invalid container edits")
    for index, node in enumerate(edits.device_nodes):
        yield from _node_problems(node, (*path, "deviceNodes", index))
    for index, hook in enumerate(edits.hooks):
        yield from _hook_problems(hook, (*path, "hooks", index))
    for index, mount in enumerate(edits.mounts):
        yield from _mount_problems(mount, (*path, "mounts", index))
    if edits.intel_rdt is not None:
        yield from _rdt_problems(edits.intel_rdt, (*path, "intelRdt"))
    if edits.net_devices:
        yield from net_device_problems(edits.net_devices, (*path, "netDevices"))


def net_device_problems(devices: Iterable[NetDevice | None], path: Path = ()) -> Iterator[Problem]:
    """Both names must be there, and each must be the only one of its kind in a block."""
    hosts: dict[str, str] = {}
    names: dict[str, str] = {}
    for index, device in enumerate(devices):
        place = (*path, index)
        if device is None:
            yield Problem("null element in netDevices: invalid (nil) linux net device", place)
            continue
        host, name = device.host_interface_name, device.name
        if not host:
            yield Problem("invalid linux net device, empty HostInterfaceName", place)
        if not name:
            yield Problem("invalid linux net device, empty Name", place)
        if host and host in hosts:
            yield Problem(
                f"invalid linux net device, duplicate HostInterfaceName {quote(host)}"
                f" with names {quote(name)} and {quote(hosts[host])}",
                place,
            )
        if name and name in names:
            yield Problem(
                f"invalid linux net device, duplicate Name {quote(name)}"
                f" with HostInterfaceName {quote(host)} and {quote(names[name])}",
                place,
            )
        hosts.setdefault(host, name)
        names.setdefault(name, host)


def strict_problems(spec: Spec) -> Iterator[Problem]:
    """What SPEC.md says beyond the library: lengths, DNS vendors, absolute clean paths, annotations, numbers."""
    vendor, device_class = split_kind(spec.kind)
    if not _DNS_SUBDOMAIN.fullmatch(vendor) or len(vendor) > 253:
        yield Problem(f"vendor {quote(vendor)} is not a DNS subdomain of at most 253 lower-case characters", ("kind",))
    if len(device_class) > 63:
        yield Problem(
            f"class {quote(device_class)} has {len(device_class)} characters, at most 63 are allowed", ("kind",)
        )
    yield from _annotation_problems(spec.annotations, ("annotations",))
    yield from _strict_edits(spec.container_edits, ("containerEdits",))
    for index, device in enumerate(spec.devices):
        place: Path = ("devices", index)
        if len(device.name) > 63:
            yield Problem(
                f"device name {quote(device.name)} has {len(device.name)} characters, at most 63 are allowed",
                (*place, "name"),
            )
        yield from _annotation_problems(device.annotations, (*place, "annotations"))
        yield from _strict_edits(device.container_edits, (*place, "containerEdits"))


def _device_problems(device: Device, path: Path) -> Iterator[Problem]:
    name = quote(device.name)
    message = check_device(device.name)
    if message:
        yield Problem(f"failed add device {name}: {message}", (*path, "name"))
    if device.container_edits.empty:
        yield Problem(f"failed add device {name}: invalid device, empty device edits", path)
    for problem in edit_problems(device.container_edits, (*path, "containerEdits")):
        yield Problem(f"invalid device {name}: {problem.message}", problem.path)


def _env_problems(variables: Iterable[str], path: Path, context: str) -> Iterator[Problem]:
    for index, variable in enumerate(variables):
        if variable.find("=") <= 0:
            yield Problem(f"{context}: invalid environment variable {quote(variable)}", (*path, index))


def _node_problems(node: DeviceNode | None, path: Path) -> Iterator[Problem]:
    if node is None:
        yield Problem("null element in deviceNodes: invalid (nil) device node", path)
        return
    name = quote(node.path)
    if not node.path:
        yield Problem("invalid (empty) device path", path)
    if node.type not in _NODE_TYPES:
        yield Problem(f"device {name}: invalid type {quote(node.type)}", (*path, "type"))
    if node.major < 0 or node.minor < 0:
        place = (*path, "major" if node.major < 0 else "minor")
        yield Problem(f"device {name}: invalid (negative) device number {node.major}:{node.minor}", place)
    if node.permissions != "none" and not _PERMISSIONS.issuperset(node.permissions):
        yield Problem(f"device {name}: invalid permissions {quote(node.permissions)}", (*path, "permissions"))


def _hook_problems(hook: Hook | None, path: Path) -> Iterator[Problem]:
    if hook is None:
        yield Problem("null element in hooks: invalid (nil) hook", path)
        return
    if hook.hook_name not in HOOK_NAMES:
        yield Problem(f"invalid hook name {quote(hook.hook_name)}", (*path, "hookName"))
    if not hook.path:
        yield Problem(f"invalid hook {quote(hook.hook_name)} with empty path", path)
    yield from _env_problems(hook.env, (*path, "env"), f"invalid hook {quote(hook.hook_name)}")


def _mount_problems(mount: Mount | None, path: Path) -> Iterator[Problem]:
    if mount is None:
        yield Problem("null element in mounts: invalid (nil) mount", path)
        return
    if not mount.host_path:
        yield Problem("invalid mount, empty host path", path)
    if not mount.container_path:
        yield Problem("invalid mount, empty container path", path)


def _rdt_problems(rdt: IntelRdt, path: Path) -> Iterator[Problem]:
    clos = rdt.clos_id
    if clos == "/":
        return
    if len(clos.encode("utf-8", "surrogatepass")) >= MAX_CLOS_ID_BYTES or clos in (".", "..") or set(clos) & set("/\n"):
        yield Problem("invalid ClosID: a file name, or / for the root group", (*path, "closID"))


_DNS_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_ANNOTATION_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)


def _annotation_problems(annotations: Mapping[str, str], path: Path) -> Iterator[Problem]:
    for key in annotations:
        message = _annotation_key_problem(key)
        if message:
            yield Problem(f"annotation key {quote(key)}: {message}", (*path, key))
    size = sum(
        len(key.encode("utf-8", "replace")) + len(v.encode("utf-8", "replace")) for key, v in annotations.items()
    )
    if size > MAX_ANNOTATION_BYTES:
        yield Problem(f"annotations have {size} bytes, at most {MAX_ANNOTATION_BYTES} are allowed", path)


def _annotation_key_problem(key: str) -> str:
    parts = key.split("/")
    if len(parts) > 2:
        return "more than one slash"
    name = parts[-1]
    if len(parts) == 2:
        prefix = parts[0].lower()
        if len(prefix) > 253 or not _DNS_SUBDOMAIN.fullmatch(prefix):
            return "the prefix is not a DNS subdomain of at most 253 characters"
    if not name:
        return "no name"
    if len(name) > 63:
        return f"the name has {len(name)} characters, at most 63 are allowed"
    if not _ANNOTATION_NAME.fullmatch(name):
        return "the name must begin and end with a letter or digit, with letters, digits, - _ . between"
    return ""


def _strict_edits(edits: ContainerEdits, path: Path) -> Iterator[Problem]:
    for index, variable in enumerate(edits.env):
        yield from _nul_problem(variable, (*path, "env", index))
    for index, node in enumerate(edits.device_nodes):
        place: Path = (*path, "deviceNodes", index)
        yield from _path_problems(node.path, (*place, "path"))
        if node.host_path:
            yield from _path_problems(node.host_path, (*place, "hostPath"))
        if node.file_mode is not None and node.file_mode > 0o7777:
            yield Problem(f"fileMode {node.file_mode} has bits beyond 07777", (*place, "fileMode"))
        if node.minor and not node.major:
            yield Problem(f"minor {node.minor} without a major number is overwritten from the host", (*place, "minor"))
        if len(set(node.permissions)) != len(node.permissions) and node.permissions != "none":
            yield Problem(f"permissions {quote(node.permissions)} repeat a letter", (*place, "permissions"))
    for index, mount in enumerate(edits.mounts):
        yield from _path_problems(mount.host_path, (*path, "mounts", index, "hostPath"))
        yield from _path_problems(mount.container_path, (*path, "mounts", index, "containerPath"))
    for index, hook in enumerate(edits.hooks):
        place = (*path, "hooks", index)
        yield from _path_problems(hook.path, (*place, "path"))
        if hook.timeout is not None and hook.timeout <= 0:
            yield Problem(f"hook timeout {hook.timeout} must be greater than 0", (*place, "timeout"))
        for position, text in enumerate((*hook.args, *hook.env)):
            yield from _nul_problem(text, (*place, "args" if position < len(hook.args) else "env"))
    for index, device in enumerate(edits.net_devices):
        for field, name in (("hostInterfaceName", device.host_interface_name), ("name", device.name)):
            if len(name.encode("utf-8", "replace")) > 15 or name in (".", "..") or set(name) & set("/: \t\n"):
                yield Problem(
                    f"netDevices: {quote(name)} is no interface name (at most 15 bytes, no slash, colon or space)",
                    (*path, "netDevices", index, field),
                )


def _path_problems(value: str, place: Path) -> Iterator[Problem]:
    field = place[-1]
    yield from _nul_problem(value, place)
    if not value.startswith("/"):
        yield Problem(f"{field} {quote(value)} is not absolute", place)
    elif posixpath.normpath(value) != value:
        yield Problem(f"{field} {quote(value)} is not clean, it means {quote(_clean(value))}", place)


def _clean(path: str) -> str:
    cleaned = posixpath.normpath(path)
    return cleaned[1:] if cleaned.startswith("//") else cleaned


def _nul_problem(text: str, place: Path) -> Iterator[Problem]:
    if "\0" in text:
        yield Problem("a NUL character cannot be passed to a process", place)
