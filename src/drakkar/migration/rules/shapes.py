"""Shapes: fields that an API does not have, or has elsewhere, and values outside an enumeration.

Only objects whose version is served are looked at: an old version needs a rewrite first, and it had other shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from drakkar.migration.claims import Claim
from drakkar.migration.context import kubernetes
from drakkar.migration.documents import Document, Steps
from drakkar.migration.findings import Finding
from drakkar.migration.review import Review
from drakkar.migration.rules import rule

_MODES: Final = ("ExactCount", "All")


@rule("shapes")
def allocation_mode(review: Review) -> Iterator[Finding]:
    """Modes that do not exist, and All with a count."""
    for _, request in review.iterate_requests():
        mode = request.value.get("allocationMode")
        if mode is not None and mode not in _MODES:
            yield request.document.finding(
                "allocation-mode-unknown",
                (*request.steps, "allocationMode"),
                f"allocationMode {mode!r} does not exist: ExactCount (the default, with count) or All",
                "ExactCount",
            )
        elif mode == "All" and "count" in request.value:
            yield request.document.finding(
                "count-with-all",
                (*request.steps, "count"),
                "allocationMode All takes every matching device and no count; the API server refuses both together",
                "remove count, or write allocationMode: ExactCount",
            )


@rule("shapes")
def request_fields(review: Review) -> Iterator[Finding]:
    """Fields of a request beside `exactly`, or without it."""
    for claim in review.claims:
        for steps, entry in claim.entries():
            yield from _inline(claim, steps, entry)


def _inline(claim: Claim, steps: Steps, entry: Mapping[str, Any]) -> Iterator[Finding]:
    table = kubernetes().fields
    document = claim.document
    if claim.inline:
        allowed = {*table["request"], "name", "firstAvailable"} - {"capacity", "derivedAttributes"}
        for name in entry:
            if name not in allowed:
                hint = " (v1beta1 has the fields of a request directly in it)" if name == "exactly" else ""
                yield document.finding(
                    "unknown-field", (*steps, name), f"{claim.document.api_version} has no {name}{hint}"
                )
        return
    misplaced = [name for name in entry if name in table["request"]]
    if misplaced and "exactly" not in entry and "firstAvailable" not in entry:
        name = "deviceClassName" if "deviceClassName" in misplaced else misplaced[0]
        yield document.finding(
            "request-fields-inline",
            (*steps, name),
            f"in {document.api_version} the fields of a request ({', '.join(misplaced)}) sit under `exactly`;"
            " directly in"
            " the request they are unknown fields",
            "move them under `exactly:`",
        )
        misplaced = []
    for name in entry:
        if name in table["requestEntry"] or (name in table["request"] and name not in misplaced):
            continue
        hint = (
            "; it belongs under `exactly`"
            if name in table["request"]
            else _near(name, (*table["requestEntry"], *table["request"]))
        )
        yield document.finding("unknown-field", (*steps, name), f"a request has no field {name}{hint}")


@rule("shapes")
def claim_fields(review: Review) -> Iterator[Finding]:
    """Everything else in claims and templates."""
    for claim in review.claims:
        document = claim.document
        if document.kind == "ResourceClaimTemplate":
            yield from _unknown(document, ("spec",), "ResourceClaimTemplate", "spec of a ResourceClaimTemplate")
            yield from _unknown(document, ("spec", "spec"), "ResourceClaim", "spec of a claim")
        else:
            yield from _unknown(document, ("spec",), "ResourceClaim", "spec of a ResourceClaim")
        yield from _unknown(document, claim.steps, "devices", "`devices` of a claim")
        for steps, _ in claim.constraints():
            yield from _unknown(document, steps, "constraint", "constraint")
        for request in claim.requests():
            if request.steps[-1] == "exactly":
                yield from _unknown(document, request.steps, "request", "request")
            elif request.alternative:
                yield from _unknown(document, request.steps, "request", "alternative", {"name"})
            yield from _items(document, (*request.steps, "tolerations"), "toleration", "toleration")
            yield from _selectors(document, (*request.steps, "selectors"))
        yield from _configs(document, (*claim.steps, "config"))


@rule("shapes")
def class_fields(review: Review) -> Iterator[Finding]:
    """DeviceClasses."""
    for document in review.kind("DeviceClass"):
        if review.served(document):
            yield from _unknown(document, ("spec",), "DeviceClass", "DeviceClass", hint="classSpec")
            yield from _selectors(document, ("spec", "selectors"))
            yield from _configs(document, ("spec", "config"))


@rule("shapes")
def slice_fields(review: Review) -> Iterator[Finding]:
    """ResourceSlices, with devices as v1 or v1beta1 has them."""
    for document in review.kind("ResourceSlice"):
        if not review.served(document):
            continue
        yield from _unknown(document, ("spec",), "ResourceSlice", "ResourceSlice")
        yield from _unknown(document, ("spec", "pool"), "pool", "pool")
        devices = document.at(("spec", "devices"))
        for number, device in enumerate(devices if isinstance(devices, list) else ()):
            if isinstance(device, dict):
                yield from _device(document, ("spec", "devices", number), device)


def _device(document: Document, steps: Steps, device: Mapping[str, Any]) -> Iterator[Finding]:
    if document.version == "v1beta1":
        for name in device:
            if name not in ("name", "basic"):
                message = f"in {document.api_version} {name} sits under `basic`"
                yield document.finding("unknown-field", (*steps, name), message)
        if isinstance(device.get("basic"), dict):
            steps, device = (*steps, "basic"), device["basic"]
    elif "basic" in device:
        yield document.finding(
            "slice-basic-in-v1",
            (*steps, "basic"),
            f"{document.api_version} has attributes and capacity directly in the device; `basic` was v1beta1's and is"
            " dropped, with everything in it",
            "move what is under `basic` one level up",
        )
        if isinstance(device["basic"], dict):
            yield from _capacities(document, (*steps, "basic"), device["basic"])
        device = {name: value for name, value in device.items() if name != "basic"}
    yield from _unknown(document, steps, "device", "device", {"basic"})
    yield from _capacities(document, steps, device)


def _capacities(document: Document, steps: Steps, device: Mapping[str, Any]) -> Iterator[Finding]:
    capacity = device.get("capacity")
    for name, value in capacity.items() if isinstance(capacity, dict) else ():
        if not isinstance(value, dict):
            yield document.finding(
                "capacity-not-wrapped",
                (*steps, "capacity", name),
                f"a capacity is an object: {name}: {{value: {value}}}; the bare quantity was v1alpha3's",
                f"{{value: {value}}}",
            )


@rule("shapes")
def pod_claim_fields(review: Review) -> Iterator[Finding]:
    """Entries of a pod's resourceClaims and of a container's claims."""
    table = kubernetes().fields
    for pod in review.pods:
        for entry in pod.claims:
            yield from _unknown(pod.document, entry.steps, "podClaim", "resourceClaims entry")
        for container in pod.containers:
            claims = container.resources.get("claims")
            for number, claim in enumerate(claims if isinstance(claims, list) else ()):
                for name in claim if isinstance(claim, dict) else ():
                    if name not in table["containerClaim"]:
                        steps = (*container.steps, "resources", "claims", number, name)
                        message = (
                            f"a claim of a container has no field {name}; it has name, and request to use one only"
                        )
                        yield pod.document.finding("unknown-field", steps, message)


def _configs(document: Document, steps: Steps) -> Iterator[Finding]:
    yield from _items(document, steps, "config", "configuration entry")
    entries = document.at(steps)
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict) and "opaque" in entry:
            yield from _unknown(document, (*steps, number, "opaque"), "opaque", "`opaque`")


def _selectors(document: Document, steps: Steps) -> Iterator[Finding]:
    yield from _items(document, steps, "selector", "selector")
    entries = document.at(steps)
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict) and "cel" in entry:
            yield from _unknown(document, (*steps, number, "cel"), "cel", "`cel`")


def _items(document: Document, steps: Steps, table: str, what: str) -> Iterator[Finding]:
    entries = document.at(steps)
    for number in range(len(entries) if isinstance(entries, list) else 0):
        yield from _unknown(document, (*steps, number), table, what)


def _unknown(
    document: Document,
    steps: Steps,
    table: str,
    what: str,
    more: set[str] | frozenset[str] = frozenset(),
    hint: str = "",
) -> Iterator[Finding]:
    value = document.at(steps)
    known = {*kubernetes().fields[table], *more}
    for name in value if isinstance(value, dict) else ():
        if name not in known:
            told = kubernetes().field_hints.get(hint, "")
            yield document.finding(
                "unknown-field",
                (*steps, name),
                f"{what} has no field {name} in {document.api_version or 'this API'}"
                + (f": {told}" if told else _near(name, known)),
            )


def _near(name: str, known: Any) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""
