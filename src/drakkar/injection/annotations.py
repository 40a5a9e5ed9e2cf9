"""Container annotations that ask for CDI devices: ``cdi.k8s.io/<plugin>_<device id>: vendor/class=name,…``.

The way of runtimes before CRI got its own field; containerd and CRI-O still read them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from .errors import CdiError
from .names import ALPHANUMERIC, QualifiedName, quote

__all__ = ["ANNOTATION_PREFIX", "Requested", "annotate", "annotation_key", "annotation_value", "requested_devices"]

ANNOTATION_PREFIX: Final = "cdi.k8s.io/"
MAX_NAME_BYTES: Final = 63
_INNER: Final = ALPHANUMERIC | set("_-.")


class Requested(NamedTuple):
    """The annotation keys that ask for devices, sorted, and the devices in that order."""

    keys: tuple[str, ...]
    devices: tuple[str, ...]


def annotation_key(plugin: str, device_id: str) -> str:
    """The key under which ``plugin`` (by convention ``vendor.class``) asks for the device it knows as ``device_id``.

    Raises:
        CdiError: a part is empty, or the name is longer than 63 bytes or has other characters than allowed.
    """
    if not plugin:
        raise _invalid("invalid plugin name, empty")
    if not device_id:
        raise _invalid("invalid deviceID, empty")
    name = f"{plugin}_{device_id.replace('/', '_')}"
    if len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        raise _invalid(f"invalid plugin+deviceID {quote(name)}, too long (at most {MAX_NAME_BYTES} bytes)")
    if name[0] not in ALPHANUMERIC:
        raise _invalid(f"invalid name {quote(name)}, first '{name[0]}' should be alphanumeric")
    for character in name[1:-1]:
        if character not in _INNER:
            raise _invalid(f"invalid name {quote(name)}, invalid character '{character}'")
    if name[-1] not in ALPHANUMERIC:
        raise _invalid(f"invalid name {quote(name)}, last '{name[-1]}' should be alphanumeric")
    return ANNOTATION_PREFIX + name


def annotation_value(devices: Sequence[str]) -> str:
    """Qualified names joined by commas.

    Raises:
        CdiError: a name is not qualified.
    """
    return ",".join(str(QualifiedName.parse(device)) for device in devices)


def annotate(annotations: Mapping[str, str], plugin: str, device_id: str, devices: Sequence[str]) -> dict[str, str]:
    """A copy of ``annotations`` that also asks for ``devices``.

    Raises:
        CdiError: the key is invalid or already there, or a name is not qualified.
    """
    key = annotation_key(plugin, device_id)
    if key in annotations:
        raise _invalid(f"CDI annotation failed, key {quote(key)} used")
    return {**annotations, key: annotation_value(devices)}


def requested_devices(annotations: Mapping[str, str]) -> Requested:
    """All devices asked for, by sorted key.

    Raises:
        CdiError: a name is not qualified; nothing of the annotations counts then.
    """
    keys = tuple(sorted(key for key in annotations if key.startswith(ANNOTATION_PREFIX)))
    devices: list[str] = []
    for key in keys:
        for name in annotations[key].split(","):
            try:
                QualifiedName.parse(name)
            except CdiError as error:
                raise _invalid(f"invalid CDI device name {quote(name)} in annotation {key}: {error.message}") from None
            devices.append(name)
    return Requested(keys, tuple(devices))


def _invalid(message: str) -> CdiError:
    return CdiError(message, reason="InvalidAnnotation")
