"""serviceaccounts/token: a time-limited token, perhaps bound to a pod or node (TokenRequest, KEP-1205)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from drakkar.cluster.apiserver import answers, statuses
from drakkar.cluster.apiserver.bodies import object_body
from drakkar.cluster.apiserver.calls import Answer, Call
from drakkar.cluster.apiserver.identities import ISSUER
from drakkar.cluster.apiserver.options import check_write
from drakkar.cluster.apiserver.resources import ApiResource
from drakkar.kube.clock import rfc3339

ROW: Final = ApiResource("authentication.k8s.io", "v1", "tokenrequests", "TokenRequest")
SHORTEST: Final = 600
DEFAULT: Final = 3600
LONGEST: Final = 1 << 32
_BINDABLE: Final = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}


async def create(call: Call) -> Answer:
    """Answers the request with its token filled in."""
    check_write(call, "CreateOptions")
    request = object_body(call, ROW)
    given = {**(request.get("metadata") or {}), "namespace": call.info.namespace}
    admission = call.server.admission
    request = await admission.change(call, "CREATE", {**request, "metadata": given}) or request
    account = call.stored().value["metadata"]
    request = {**request, "spec": {**(request.get("spec") or {})}}
    request["spec"]["audiences"] = request["spec"].get("audiences") or [ISSUER]
    made = {"name": call.name, "uid": account["uid"], "creationTimestamp": call.timestamp}
    await admission.judge(call, "CREATE", {**request, "metadata": {**given, **made}})
    spec = {**(request.get("spec") or {})}
    seconds = spec.get("expirationSeconds") or DEFAULT
    if not SHORTEST <= seconds <= LONGEST:
        word = (
            "may not specify a duration less than 10 minutes"
            if seconds < SHORTEST
            else "may not specify a duration larger than 2^32 seconds"
        )
        raise _invalid("spec.expirationSeconds", f"Invalid value: {seconds}: {word}")
    spec["expirationSeconds"] = seconds
    spec["audiences"] = spec.get("audiences") or [ISSUER]
    token = call.server.tokens.issue(
        call.info.namespace,
        call.name,
        account["uid"],
        call.now.timestamp(),
        seconds,
        audiences=spec["audiences"],
        bound=_bound(call, spec.get("boundObjectRef")),
    )
    metadata = {"name": call.name, "namespace": call.info.namespace}
    metadata |= {"uid": account["uid"], "creationTimestamp": call.timestamp}
    answer = {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": metadata,
        "spec": {name: spec.get(name) for name in ("audiences", "expirationSeconds", "boundObjectRef")},
        "status": {"token": token, "expirationTimestamp": rfc3339(call.now + timedelta(seconds=seconds))},
    }
    return answers.value(call, answer, 201)


def _bound(call: Call, reference: dict[str, Any] | None) -> dict[str, dict[str, str]]:
    """The claims of the object that the token is bound to."""
    if not reference:
        return {}
    kind, name = reference.get("kind", ""), reference.get("name", "")
    if kind not in _BINDABLE:
        raise statuses.bad_request(f"cannot bind token for serviceaccount to object of type {kind}")
    key = name if kind == "Node" else f"{call.info.namespace}/{name}"
    stored = call.server.store.collection(_BINDABLE[kind]).get(key)
    if stored is None:
        raise statuses.not_found("", _BINDABLE[kind], name)
    metadata = stored.value["metadata"]
    if reference.get("uid") and reference["uid"] != metadata["uid"]:
        why = (
            f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record."
            " The object might have been deleted and then recreated"
        )
        raise statuses.conflict("", _BINDABLE[kind], name, why)
    bound = {kind.lower(): {"name": name, "uid": metadata["uid"]}}
    node = stored.value.get("spec", {}).get("nodeName") if kind == "Pod" else ""
    if node:
        found = call.server.store.collection("nodes").get(node)
        bound["node"] = {"name": node, **({"uid": found.value["metadata"]["uid"]} if found is not None else {})}
    return bound


def _invalid(field: str, message: str) -> statuses.StatusError:
    cause = {"reason": "FieldValueInvalid", "message": message, "field": field}
    details = {"group": "authentication.k8s.io", "kind": "TokenRequest", "causes": [cause]}
    text = f'TokenRequest.authentication.k8s.io "" is invalid: {field}: {message}'
    return statuses.StatusError(statuses.status(422, text, details=details))
