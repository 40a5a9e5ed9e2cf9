"""Claims: administrative access needs a labelled namespace, and the parts of a status have owners of their own.

KEP-5018 (admin access) and the fine-grained status permissions of 1.36: who changes allocation or reservations needs
the synthetic subresource `resourceclaims/binding`, who changes a driver's device status needs `resourceclaims/driver`
with the verb prefix of the nodes he may speak for.
"""

from __future__ import annotations

from typing import Any, Final

from drakkar.api.fields import FieldError
from drakkar.cluster.apiserver.authorization import Attributes, refusal
from drakkar.cluster.apiserver.calls import Call
from drakkar.cluster.apiserver.identities import SERVICE_ACCOUNT_PREFIX

Value = dict[str, Any]

ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"
_ADMIN_DETAIL: Final = f"admin access to devices requires the `{ADMIN_LABEL}: true` label on the containing namespace"
_GROUP: Final = "resource.k8s.io"


def admin_access(call: Call, operation: str, obj: Value, old: Value | None) -> list[FieldError]:
    """An error about the first request that asks for administrative access in a namespace without the label.

    Also in a template the original calls its place `spec.devices`.
    """
    del old
    if operation != "CREATE":  # specs are immutable, which is all that is said of a change
        return []
    spec = (obj.get("spec") or {}).get("spec") if _is_template(obj) else obj.get("spec")
    requests = ((spec or {}).get("devices") or {}).get("requests") or ()
    found = [index for index, request in enumerate(requests) if (request.get("exactly") or {}).get("adminAccess")]
    if not found or _is_admin_namespace(call):
        return []
    return [
        FieldError("FieldValueForbidden", f"spec.devices.requests[{index}].adminAccess", _ADMIN_DETAIL)
        for index in found[:1]
    ]


def admin_access_of_status(call: Call, operation: str, obj: Value, old: Value | None) -> list[FieldError]:
    """The same for what an allocation says was granted."""
    if operation != "UPDATE" or call.subresource is None or call.subresource.name != "status":
        return []
    allocation = (obj.get("status") or {}).get("allocation") or {}
    if allocation == (((old or {}).get("status") or {}).get("allocation") or {}):
        return []
    results = (allocation.get("devices") or {}).get("results") or ()
    found = [index for index, result in enumerate(results) if result.get("adminAccess")]
    if not found or _is_admin_namespace(call):
        return []
    return [
        FieldError("FieldValueForbidden", f"status.allocation.devices.results[{index}].adminAccess", _ADMIN_DETAIL)
        for index in found[:1]
    ]


def _is_admin_namespace(call: Call) -> bool:
    namespace = call.server.store.collection("namespaces").get(call.info.namespace)
    return namespace is not None and namespace.labels.get(ADMIN_LABEL) == "true"


def _is_template(obj: Value) -> bool:
    return bool(obj["kind"] == "ResourceClaimTemplate")


def status_authorization(call: Call, operation: str, obj: Value, old: Value | None) -> list[FieldError]:
    """Check the synthetic subresources on a write to a claim's status."""
    if operation != "UPDATE" or old is None or call.subresource is None or call.subresource.name != "status":
        return []
    new_status, old_status = obj.get("status") or {}, old.get("status") or {}
    errors = []
    if any(new_status.get(part) != old_status.get(part) for part in ("allocation", "reservedFor")):
        errors += _binding(call)
    errors += _drivers(call, new_status, old_status)
    return errors


def _binding(call: Call) -> list[FieldError]:
    # The check is made at the cluster scope, whatever the claim's namespace (recorded behaviour).
    asked = Attributes(call.info.verb, _GROUP, "resourceclaims", "binding")
    decision = call.server.authorizer.decide(call.user, asked)
    if decision.allowed:
        return []
    reason = refusal(call.user, asked, decision.reason).message
    detail = (
        'changing status.allocation or status.reservedFor requires resource="resourceclaims/binding",'
        f' verb="{call.info.verb}" permission: {reason}'
    )
    return [FieldError("FieldValueForbidden", "status.allocation", detail)]


def _drivers(call: Call, new: Value, old: Value) -> list[FieldError]:
    if not new.get("allocation") and old.get("allocation"):
        return []  # deallocation takes the device status with it
    changed = _changed_drivers(new.get("devices") or (), old.get("devices") or ())
    errors = []
    for driver in sorted(changed):
        error = _driver(call, driver, new if new.get("allocation") else old)
        if error is not None:
            errors.append(error)
    return errors


def _changed_drivers(new: Any, old: Any) -> set[str]:
    def by_device(devices: Any) -> dict[tuple[str, ...], Value]:
        return {
            (one.get("driver", ""), one.get("pool", ""), one.get("device", ""), one.get("shareID", "")): one
            for one in devices
        }

    before, after = by_device(old), by_device(new)
    return {key[0] for key in {*before, *after} if before.get(key) != after.get(key)}


def _driver(call: Call, driver: str, status: Value) -> FieldError | None:
    verb = call.info.verb
    prefixes = ["arbitrary-node"]
    node = next(iter(call.user.extra.get("authentication.kubernetes.io/node-name", ())), "")
    if call.user.name.startswith(SERVICE_ACCOUNT_PREFIX) and node and _node_of(status) == node:
        prefixes.insert(0, "associated-node")
    reason = ""
    for prefix in prefixes:
        asked = Attributes(f"{prefix}:{verb}", _GROUP, "resourceclaims", "driver", call.info.namespace, driver)
        decision = call.server.authorizer.decide(call.user, asked)
        if decision.allowed:
            return None
        reason = refusal(call.user, asked, decision.reason).message
    verbs = " ".join(f"{prefix}:{verb}" for prefix in prefixes)
    detail = f'changing status.devices requires resource="resourceclaims/driver", verb="[{verbs}]" permission: {reason}'
    return FieldError("FieldValueForbidden", "status.devices", detail)


def _node_of(status: Value) -> str:
    """The single node that an allocation is for, "" if it is not bound to one by name."""
    terms: list[Value] = ((status.get("allocation") or {}).get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    if len(terms) != 1:
        return ""
    for field in terms[0].get("matchFields") or ():
        values: list[str] = field.get("values") or []
        if field.get("key") == "metadata.name" and field.get("operator") == "In" and len(values) == 1:
            return str(values[0])
    return ""
