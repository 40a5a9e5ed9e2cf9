"""What is wrong with a ResourceClaim, its template or its status (hand-written half; see `declarative` for the other).

A claim's spec is immutable, so it is checked once; the status is checked against the spec's requests and its own former
allocation. Order of findings as upstream, KEP-4381 and the KEPs of the single fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from drakkar.api import metadata, shared
from drakkar.api.expressions import check_expression, check_selectors
from drakkar.api.fields import FieldError, forbidden, invalid, not_supported, required, too_long, too_many
from drakkar.kube import names

__all__ = ["check_claim", "check_claim_status", "check_claim_update", "check_configuration", "check_template"]

Found = list[FieldError]
Json = Mapping[str, Any]
REQUESTS_LIMIT: Final = 32
SUBREQUESTS_LIMIT: Final = 8
CONFIG_LIMIT: Final = 32
RESULTS_LIMIT: Final = 32
RESERVED_LIMIT: Final = 256
OPAQUE_LIMIT: Final = 10 * 1024
CONDITIONS_LIMIT: Final = 8
IPS_LIMIT: Final = 16
_MODES: Final = ("All", "ExactCount")
_NO_REQUEST: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)


def check_claim(claim: Json) -> Found:
    """A new claim."""
    meta = claim.get("metadata") or {}
    found = metadata.check_create(meta, namespaced=True, name_check=names.dns_subdomain)
    found += metadata.check_qualified_finalizers(meta)
    return found + check_claim_spec(claim.get("spec") or {}, "spec")


def check_claim_update(claim: Json, old: Json) -> Found:
    """A changed claim: nothing in its spec may differ."""
    meta, old_meta = claim.get("metadata") or {}, old.get("metadata") or {}
    found = metadata.check_create(meta, namespaced=True, name_check=names.dns_subdomain)
    found += metadata.check_qualified_finalizers(meta)
    found += metadata.check_update(meta, old_meta)
    found += metadata.check_qualified_finalizers(meta)
    spec, old_spec = claim.get("spec"), old.get("spec")
    return found + metadata.check_immutable(spec, old_spec, "spec", covered=True, origin="immutable")


def check_template(template: Json, old: Json | None = None) -> Found:
    """A template, new or changed; its spec may not differ."""
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    found = metadata.check_create(meta, namespaced=True, name_check=names.dns_subdomain)
    found += metadata.check_qualified_finalizers(meta)
    found += metadata.check_template(spec.get("metadata") or {}, "spec.metadata")
    found += check_claim_spec(spec.get("spec") or {}, "spec.spec")
    if old is not None:
        found += metadata.check_update(meta, old.get("metadata") or {})
        found += metadata.check_qualified_finalizers(meta)
        found += metadata.check_immutable(spec, old.get("spec"), "spec")
    return found


def check_claim_spec(spec: Json, path: str) -> Found:
    """The spec of a claim: requests, constraints, configuration."""
    devices = spec.get("devices") or {}
    path = f"{path}.devices"
    constraints = devices.get("constraints") or []
    known = _request_names(devices)
    attributes = _constraint_attributes(constraints)
    found = shared.check_set(
        devices.get("requests") or [],
        REQUESTS_LIMIT,
        lambda request, place: _check_request(request, place, attributes),
        _name,
        f"{path}.requests",
        size_covered=True,
        unique_covered=True,
    )
    found += shared.check_each(
        constraints,
        REQUESTS_LIMIT,
        lambda constraint, place: _check_constraint(constraint, place, known),
        f"{path}.constraints",
        size_covered=True,
    )
    return found + shared.check_each(
        devices.get("config") or [],
        CONFIG_LIMIT,
        lambda config, place: _check_references(config, place, known) + check_configuration(config, place),
        f"{path}.config",
        size_covered=True,
    )


def check_configuration(config: Json, path: str, *, stored: bool = False) -> Found:
    """Configuration for a driver: who reads it, and a JSON object."""
    opaque = config.get("opaque")
    if opaque is None:
        return [required(f"{path}.opaque")]
    found = shared.check_driver(opaque.get("driver") or "", f"{path}.opaque.driver", covered=True)
    return found + shared.check_raw(opaque.get("parameters"), f"{path}.opaque.parameters", OPAQUE_LIMIT, stored=stored)


RequestNames = dict[str, frozenset[str]]
Attributes = dict[str, set[str]]


def _name(item: Json) -> str:
    return item.get("name") or ""


def _text(item: str) -> str:
    return item


def _request_names(devices: Json) -> RequestNames:
    return {
        _name(request): frozenset(_name(sub) for sub in request.get("firstAvailable") or ())
        for request in devices.get("requests") or ()
    }


def _constraint_attributes(constraints: Sequence[Json]) -> Attributes:
    """The attributes that constraints name, by the request they are about ("" for all)."""
    found: Attributes = {}
    for constraint in constraints:
        attribute = constraint.get("matchAttribute")
        attribute = constraint.get("distinctAttribute") if attribute is None else attribute
        if attribute is not None:
            for request in constraint.get("requests") or ("",):
                found.setdefault(request, set()).add(attribute)
    return found


def _check_request(request: Json, path: str, attributes: Attributes) -> Found:
    found = shared.check_label(_name(request), f"{path}.name")
    alternatives, exactly = request.get("firstAvailable") or [], request.get("exactly")
    if not alternatives and exactly is None:
        return [*found, required(path, "exactly one of `exactly` or `firstAvailable` is required")]
    if alternatives and exactly is not None:
        detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"
        return [*found, invalid(path, None, detail)]
    if exactly is not None:
        return found + _check_exact(exactly, f"{path}.exactly", attributes, _name(request))
    return found + shared.check_set(
        alternatives,
        SUBREQUESTS_LIMIT,
        lambda sub, place: _check_subrequest(sub, place, attributes, _name(request)),
        _name,
        f"{path}.firstAvailable",
        size_covered=True,
        unique_covered=True,
    )


def _check_subrequest(sub: Json, path: str, attributes: Attributes, parent: str) -> Found:
    found = shared.check_label(_name(sub), f"{path}.name")
    device_class = _check_class(sub.get("deviceClassName") or "", f"{path}.deviceClassName")
    for error in device_class:
        error.covered = True
    return found + device_class + _check_details(sub, path, attributes, f"{parent}/{_name(sub)}")


def _check_exact(exactly: Json, path: str, attributes: Attributes, name: str) -> Found:
    found = _check_class(exactly.get("deviceClassName") or "", f"{path}.deviceClassName")
    return found + _check_details(exactly, path, attributes, name)


def _check_class(name: str, path: str) -> Found:
    return shared.check_subdomain(name, path) if name else [required(path)]


def _check_details(request: Json, path: str, attributes: Attributes, name: str) -> Found:
    found = check_selectors(request.get("selectors") or [], f"{path}.selectors")
    found += _check_derived(request.get("derivedAttributes") or [], f"{path}.derivedAttributes", attributes, name)
    found += _check_mode(request, path)
    for index, toleration in enumerate(request.get("tolerations") or ()):
        found += check_toleration(toleration, f"{path}.tolerations[{index}]")
    return found


def _check_derived(items: Sequence[Json], path: str, attributes: Attributes, request: str) -> Found:
    def check(item: Json, place: str) -> Found:
        name = _name(item)
        about = ("", request, request.partition("/")[0])
        found: Found = []
        if name and not any(name in attributes.get(key, ()) for key in about):
            detail = (
                "must be referenced by at least one matchAttribute or distinctAttribute constraint targeting this "
                "request"
            )
            found.append(invalid(f"{place}.name", name, detail))
        expression = item.get("expression")
        return found + (check_expression(expression, f"{place}.expression") if expression else [])

    return shared.check_set(items, -1, check, _name, path)


def _check_mode(request: Json, path: str) -> Found:
    mode, count = request.get("allocationMode") or "", request.get("count") or 0
    if mode == "All":
        detail = "must not be specified when allocationMode is 'All'"
        return [invalid(f"{path}.count", count, detail)] if count else []
    if mode == "ExactCount":
        return [] if count > 0 else [invalid(f"{path}.count", count, "must be greater than zero")]
    return [not_supported(f"{path}.allocationMode", mode, _MODES, covered=True)]


def check_toleration(toleration: Json, path: str) -> Found:
    """A toleration of device taints."""
    key, value = toleration.get("key") or "", toleration.get("value") or ""
    operator, effect = toleration.get("operator") or "", toleration.get("effect") or ""
    found: Found = []
    if key:
        found += [
            invalid(f"{path}.key", key, text, origin="format=k8s-label-key", covered=True)
            for text in names.label_key(key)
        ]
    if operator == "Exists":
        if value:
            found.append(invalid(f"{path}.value", value, "must be empty for operator `Exists`"))
    elif operator == "Equal":
        found += shared.check_label_value(value, f"{path}.value")
    elif not operator:
        found.append(required(f"{path}.operator", covered=True))
    else:
        found.append(not_supported(f"{path}.operator", operator, ("Equal", "Exists"), covered=True))
    if effect and effect not in shared.TAINT_EFFECTS:
        found.append(not_supported(f"{path}.effect", effect, shared.TAINT_EFFECTS, covered=True))
    return found


def _check_constraint(constraint: Json, path: str, known: RequestNames) -> Found:
    found = _check_references(constraint, path, known)
    for name in ("matchAttribute", "distinctAttribute"):
        attribute = constraint.get(name)
        if attribute is not None:
            return found + _covered(check_qualified_attribute(attribute, f"{path}.{name}"))
    detail = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
    return [*found, required(path, detail)]


def check_qualified_attribute(name: str, path: str) -> Found:
    """An attribute name with its domain."""
    from drakkar.api.slices import check_attribute_name

    found = check_attribute_name(name, path)
    if "/" not in name:
        detail = "a fully qualified name must be a domain and a name separated by a slash"
        found.append(invalid(path, name, detail))
    for error in found:
        error.origin = "format=k8s-resource-fully-qualified-name"
    return found


def _covered(found: Found) -> Found:
    for error in found:
        error.covered = True
    return found


def _check_references(item: Json, path: str, known: RequestNames) -> Found:
    return shared.check_set(
        item.get("requests") or [],
        REQUESTS_LIMIT,
        lambda name, place: _check_reference(name, place, known),
        _text,
        f"{path}.requests",
        size_covered=True,
        unique_covered=True,
    )


def _check_reference(name: str, path: str, known: RequestNames) -> Found:
    parts = name.split("/")
    if len(parts) > 2:
        return [invalid(path, name, _NO_REQUEST)]
    found = [error for part in parts for error in shared.check_label(part, path)]
    there = parts[0] in known and (len(parts) == 1 or parts[1] in known[parts[0]])
    return found if there else [*found, invalid(path, name, _NO_REQUEST)]


def check_claim_status(claim: Json, old: Json) -> Found:
    """A changed status: reservations, allocation, the drivers' reports about devices."""
    meta = claim.get("metadata") or {}
    found = metadata.check_update(meta, old.get("metadata") or {})
    found += metadata.check_qualified_finalizers(meta)
    known = _request_names((claim.get("spec") or {}).get("devices") or {})
    status, before = claim.get("status") or {}, old.get("status") or {}
    allocation, reserved = status.get("allocation"), status.get("reservedFor") or []
    found += shared.check_set(
        reserved,
        RESERVED_LIMIT,
        _check_consumer,
        lambda consumer: consumer.get("uid") or "",
        "status.reservedFor",
        size_covered=True,
        unique_covered=True,
    )
    allocated = {device_id(result) for result in ((allocation or {}).get("devices") or {}).get("results") or ()}
    found += shared.check_set(
        status.get("devices") or [],
        -1,
        lambda device, place: _check_device_status(device, place, allocated),
        device_id,
        "status.devices",
        unique_covered=True,
    )
    if reserved and allocation is None:
        found.append(forbidden("status.reservedFor", "may not be specified when `allocated` is not set"))
    elif meta.get("deletionTimestamp"):
        former = before.get("reservedFor") or []
        if any(consumer not in former for consumer in reserved):
            detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            found.append(forbidden("status.reservedFor", detail))
    if allocation is not None and before.get("allocation") is not None:
        former = before["allocation"]
        return found + metadata.check_immutable(allocation, former, "status.allocation", covered=True, origin="update")
    if allocation is not None:
        found += _check_allocation(allocation, "status.allocation", known)
    return found


def device_id(device: Json) -> tuple[str, str, str, str]:
    """Driver, pool, device and share of a result or a device status."""
    return (
        device.get("driver") or "",
        device.get("pool") or "",
        device.get("device") or "",
        device.get("shareID") or "",
    )


def _check_consumer(consumer: Json, path: str) -> Found:
    return [required(f"{path}.{name}") for name in ("resource", "name", "uid") if not consumer.get(name)]


def _check_allocation(allocation: Json, path: str, known: RequestNames) -> Found:
    devices = allocation.get("devices") or {}
    found = shared.check_each(
        devices.get("results") or [],
        RESULTS_LIMIT,
        lambda result, place: _check_result(result, place, known),
        f"{path}.devices.results",
        size_covered=True,
    )
    found += shared.check_each(
        devices.get("config") or [],
        2 * CONFIG_LIMIT,
        lambda config, place: _check_allocated_config(config, place, known),
        f"{path}.devices.config",
        size_covered=True,
    )
    selector = allocation.get("nodeSelector")
    if selector is not None:
        found += shared.check_node_selector(selector, f"{path}.nodeSelector")
    return found


def _check_result(result: Json, path: str, known: RequestNames) -> Found:
    found = _check_reference(result.get("request") or "", f"{path}.request", known)
    found += shared.check_driver(result.get("driver") or "", f"{path}.driver", covered=True)
    found += shared.check_pool_name(result.get("pool") or "", f"{path}.pool", covered=True)
    found += shared.check_label(result.get("device") or "", f"{path}.device")
    found += shared.check_binding_conditions(result, path)
    for index, toleration in enumerate(result.get("tolerations") or ()):
        found += check_toleration(toleration, f"{path}.tolerations[{index}]")
    if result.get("shareID") is not None:
        found += shared.check_uuid(result["shareID"], f"{path}.shareID")
    return found + shared.check_skip_operations(result.get("skipNodeOperations") or (), f"{path}.skipNodeOperations")


def _check_allocated_config(config: Json, path: str, known: RequestNames) -> Found:
    source = config.get("source") or ""
    sources = ("FromClaim", "FromClass")
    found: Found = []
    if not source:
        found.append(required(f"{path}.source", covered=True))
    elif source not in sources:
        found.append(not_supported(f"{path}.source", source, sources, covered=True))
    return found + _check_references(config, path, known) + check_configuration(config, path)


def _check_device_status(device: Json, path: str, allocated: set[tuple[str, str, str, str]]) -> Found:
    found = shared.check_driver(device.get("driver") or "", f"{path}.driver")
    found += shared.check_pool_name(device.get("pool") or "", f"{path}.pool")
    found += shared.check_label(device.get("device") or "", f"{path}.device")
    if device.get("shareID") is not None:
        found += shared.check_uuid(device["shareID"], f"{path}.shareID")
    identity = device_id(device)
    if identity not in allocated:
        found.append(
            invalid(path, "/".join(part for part in identity if part), "must be an allocated device in the claim")
        )
    conditions = device.get("conditions") or []
    if len(conditions) > CONDITIONS_LIMIT:
        found.append(too_many(f"{path}.conditions", len(conditions), CONDITIONS_LIMIT))
    found += metadata.check_conditions(conditions, f"{path}.conditions")
    if device.get("data") is not None:
        found += shared.check_raw(device["data"], f"{path}.data", OPAQUE_LIMIT)
    return found + _check_network(device.get("networkData"), f"{path}.networkData")


def _check_network(network: Json | None, path: str) -> Found:
    if network is None:
        return []
    found: Found = []
    for name, limit in (("interfaceName", 256), ("hardwareAddress", 128)):
        if len((network.get(name) or "").encode()) > limit:
            found.append(too_long(f"{path}.{name}", limit, origin="maxBytes", covered=True))
    check: Callable[[Any, str], Found] = _check_address
    return found + shared.check_set(
        network.get("ips") or [], IPS_LIMIT, check, _text, f"{path}.ips", size_covered=True, unique_covered=True
    )


def _check_address(address: str, path: str) -> Found:
    """An address of an interface in canonical CIDR form, e.g. `192.0.2.5/24`."""
    import ipaddress

    words = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
    try:
        interface = ipaddress.ip_interface(address)
    except ValueError:
        return [invalid(path, address, words)]
    if "/" not in address or not address.rpartition("/")[2].isdigit():
        return [invalid(path, address, words)]
    canonical = interface.with_prefixlen
    if canonical != address:
        return [invalid(path, address, f'must be in canonical form ("{canonical}")')]
    return []
