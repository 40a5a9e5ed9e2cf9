"""A recorded cluster, in whatever form somebody has it: a bundle, or one file of objects as kubectl prints them.

    kubectl get nodes,pods,resourceslices,deviceclasses,resourceclaims -A -o json > snapshot.json

JSON or YAML, a List or many documents. Objects that cannot be relied on are left out and named in `Snapshot.unread`
(:mod:`drakkar.evidence.soundness`); the others are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from drakkar.api.conversion import VERSIONS, convert
from drakkar.api.defaulting import default
from drakkar.evidence import bundle
from drakkar.evidence.bundle import MAX_TOTAL_BYTES, BundleError
from drakkar.evidence.snapshot import Snapshot
from drakkar.evidence.soundness import sound
from drakkar.kube import yamltext

__all__ = ["load", "relied_on"]

Object = dict[str, Any]

_LONG_AGO: Final = "1970-01-01T00:00:00Z"

_EXPECTED: Final = (
    "a bundle (folder or tar archive), or a JSON or YAML file of objects as `kubectl get -o json` prints them"
)


def load(path: str | Path) -> Snapshot:
    """The snapshot in a bundle, or in a file of objects.

    Raises:
        BundleError: the path is missing, holds neither, or is larger than it may be.
    """
    place = Path(path)
    try:
        if not place.is_file() or not _is_text(place):
            return relied_on(bundle.load(place))
        if place.stat().st_size > MAX_TOTAL_BYTES:
            raise BundleError(
                f"{path} is larger than a snapshot may be", reason="TooLarge", subject=str(path),
                expected=f"at most {MAX_TOTAL_BYTES >> 20} MiB",
            )  # fmt: skip
        data = place.read_bytes()
    except OSError as error:
        raise BundleError(
            f"cannot read {path}: {error.strerror or error}", reason="Unreadable", subject=str(path)
        ) from None
    unread: list[str] = []
    objects = list(_objects(data, str(path), unread))
    if not objects:
        reason = unread[0] if unread else f"{path}: no Kubernetes objects"
        raise BundleError(f"{reason}", reason="NoSnapshot", subject=str(path), expected=_EXPECTED)
    events = tuple(obj for obj in objects if obj.get("kind") == "Event")
    others = tuple(obj for obj in objects if obj.get("kind") != "Event")
    found = relied_on(Snapshot(objects=others, events=events, unread=tuple(unread)))
    if not found.objects:
        raise BundleError(found.unread[0], reason="NoSnapshot", subject=str(path), expected=_EXPECTED)
    return found


def _is_text(place: Path) -> bool:
    """Whether a file begins like JSON or YAML; archives, compressed or not, have zero bytes early on."""
    with place.open("rb") as file:
        start = file.read(4096)
    return bool(start) and b"\0" not in start and not start.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ"))


def relied_on(snapshot: Snapshot) -> Snapshot:
    """The snapshot without objects that have not the shape of their kind; they are named in `unread`."""
    problems: list[str] = []
    objects = tuple(map(_as_stored, sound(map(_as_v1, snapshot.objects), problems)))
    events = tuple(sound(snapshot.events, problems))
    return replace(snapshot, objects=objects, events=events, unread=(*snapshot.unread, *problems))


def _as_v1(obj: Object) -> Object:
    """resource.k8s.io objects of an older cluster in the version that everything here reads."""
    group, _, version = str(obj.get("apiVersion") or "").partition("/")
    if group != "resource.k8s.io" or version == "v1" or version not in VERSIONS:
        return obj
    try:
        return convert(obj, "v1")
    except (AttributeError, TypeError, KeyError, ValueError):
        return obj  # its shape is wrong, and will be named


def _as_stored(obj: Object) -> Object:
    """What an API server would have filled in, for objects that were written by hand."""
    return default(obj, now=_LONG_AGO) if obj.get("kind") in ("ResourceClaim", "ResourceClaimTemplate") else obj


def _objects(data: bytes, path: str, unread: list[str]) -> Iterator[Object]:
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            yield from _items(msgspec.json.decode(data), path, "", unread)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            # Flow-style YAML and several JSON documents one after the other begin with a brace as well.
            if b"\n---" not in data and b"}\n{" not in data:
                unread.append(f"{path}: {error}")
                return
        else:
            return
    try:
        for tree in yamltext.trees(data.replace(b"}\n{", b"}\n---\n{"), duplicates=True):
            yield from _items(tree.value, path, f":{tree.line}", unread)
    except yamltext.YamlError as error:
        unread.append(f"{path}: {error}")


def _items(value: Any, path: str, line: str, unread: list[str]) -> Iterator[Object]:
    if value is None:
        return
    if isinstance(value, dict) and str(value.get("kind")).endswith("List") and isinstance(value.get("items"), list):
        of = str(value["kind"]).removesuffix("List")  # items of a typed list carry no kind
        for item in value["items"]:
            known = of and isinstance(item, dict) and "kind" not in item
            yield from _items({"kind": of, **item} if known else item, path, line, unread)
    elif isinstance(value, list):
        for item in value:
            yield from _items(item, path, line, unread)
    elif isinstance(value, dict) and isinstance(value.get("kind"), str):
        yield value
    else:
        unread.append(f"{path}{line}: a document that is no Kubernetes object")
