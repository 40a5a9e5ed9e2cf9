"""Claims that pods ask for by template, and reservations for pods that bypass the scheduler.

KEP-4381: one claim per pod and entry, owned by the pod, with a generated name that is written into the pod's status by
server-side apply. A claim that was made before a crash is recognised by its owner and annotation.
"""

from __future__ import annotations

from typing import Any

from drakkar.cluster.controllers.controller import Context, Controller, Key, Object, key_of
from drakkar.cluster.controllers.owners import owner_reference
from drakkar.kube.apierrors import ApiError
from drakkar.kube.resources import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, RESOURCE_QUOTAS

CLAIM_NAME_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
FIELD_MANAGER = "ResourceClaimController"
MAX_CONSUMERS = 256
_MAX_BASE = 57  # leaves room for a hyphen and five random characters in a name of 63


class ClaimTemplates(Controller):
    """Pods in, claims out."""

    name = "resource_claim"
    workers = 10

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._recorder = context.recorder(self.name)
        self._templates = context.informer(RESOURCE_CLAIM_TEMPLATES)
        self._pods = self.watch(PODS, self._on_pod)
        self._claims = self.watch(RESOURCE_CLAIMS, self._on_claim)
        self._claims.add_index("pod", _owning_pod_index)
        self._pods.add_index("claim", claims_of_pod)
        self._made: dict[tuple[str, str], Object] = {}
        self._refused: set[Key] = set()
        self.watch(RESOURCE_QUOTAS, self._on_quota)

    def _on_quota(self, kind: str, old: Object | None, new: Object | None) -> None:
        # Whoever was refused by a quota need not sit out the delay that failures earned.
        quota = new or old
        for key in [one for one in self._refused if quota and one[0] == quota["metadata"]["namespace"]]:
            self._refused.discard(key)
            self.queue.add(key)

    def _on_pod(self, kind: str, old: Object | None, new: Object | None) -> None:
        if new is not None:
            if (new.get("spec") or {}).get("resourceClaims") and not _done(new):
                self.queue.add(key_of(new))
        elif old is not None:
            self._refused.discard(key_of(old))
            for reference in (old.get("spec") or {}).get("resourceClaims") or ():
                self._made.pop((old["metadata"]["uid"], reference["name"]), None)

    def _on_claim(self, kind: str, old: Object | None, new: Object | None) -> None:
        claim = new or old
        if claim is None:
            return
        if new is None:
            marks = claim["metadata"].get("annotations") or {}
            for owner in _owning_pod_index(claim):
                self._made.pop((owner, marks.get(CLAIM_NAME_ANNOTATION, "")), None)
        for pod in self._pods.by_index("claim", key_of(claim)):
            # Only a pod that came with a node name still waits for somebody to reserve the claim for it.
            if (pod.get("spec") or {}).get("nodeName") or new is None:
                self.queue.add(key_of(pod))

    async def reconcile(self, key: Key) -> float | None:
        pod = self._pods.get(*key)
        if pod is None or pod["metadata"].get("deletionTimestamp") or _done(pod):
            return None
        if pod["metadata"]["uid"] in self.context.left_alone:
            return None
        names: dict[str, str] = {}
        for reference in pod["spec"].get("resourceClaims") or ():
            if not reference.get("resourceClaimTemplateName"):
                continue
            try:
                name = await self._ensure(pod, reference)
            except ApiError as error:
                self._failed(pod, reference, error.message)
                raise
            except _OwnershipError as error:
                self._failed(pod, reference, str(error))
                raise
            if name is not None:
                names[reference["name"]] = name
        self._refused.discard(key)
        await self._publish(pod, names)
        if pod["spec"].get("nodeName"):
            await self._reserve(pod, names)
        return None

    async def _ensure(self, pod: Object, reference: Object) -> str | None:
        """The name of the claim for one entry; None if the pod's status says that it needs none."""
        metadata = pod["metadata"]
        statuses = _statuses(pod)
        if reference["name"] in statuses:
            name = statuses[reference["name"]]
            if name is None:
                return None
            claim = self._claims.get(metadata["namespace"], name)
            if claim is not None:
                self._made.pop((metadata["uid"], reference["name"]), None)
                _check_owner(claim, pod)
                return name
        claim = self._existing(pod, reference["name"])
        if claim is None:
            template = await self._template(metadata["namespace"], reference["resourceClaimTemplateName"])
            claim = await self.client.create(RESOURCE_CLAIMS, claim_from_template(pod, reference["name"], template))
            self._made[(metadata["uid"], reference["name"])] = claim
        found: str = claim["metadata"]["name"]
        return found

    def _existing(self, pod: Object, reference_name: str) -> Object | None:
        uid = pod["metadata"]["uid"]
        for claim in self._claims.by_index("pod", uid):
            metadata = claim["metadata"]
            if (metadata.get("annotations") or {}).get(CLAIM_NAME_ANNOTATION) == reference_name:
                self._made.pop((uid, reference_name), None)
                if not metadata.get("deletionTimestamp"):
                    return claim
        return self._made.get((uid, reference_name))

    async def _template(self, namespace: str, name: str) -> Object:
        template = self._templates.get(namespace, name)
        if template is not None:
            return template
        try:
            return await self.client.get(RESOURCE_CLAIM_TEMPLATES, name, namespace)
        except ApiError as error:
            if error.not_found:
                # In the words of Kubernetes' cache, which names the resource in the singular.
                text = f'resource claim template "{name}": resourceclaimtemplate.resource.k8s.io "{name}" not found'
                raise ApiError(error.status, error.reason, text, error.details) from error
            raise

    async def _publish(self, pod: Object, names: dict[str, str]) -> None:
        """Write the names into the pod's status, together with those that are there already."""
        statuses = _statuses(pod)
        if all(statuses.get(name) == claim for name, claim in names.items()):
            return
        merged = {**statuses, **names}
        metadata = pod["metadata"]
        entries = [{"name": name, "resourceClaimName": claim} for name, claim in merged.items()]
        patch = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]},
            "status": {
                "resourceClaimStatuses": [
                    {key: value for key, value in entry.items() if value is not None} for entry in entries
                ]
            },
        }
        await self.client.patch(
            PODS, metadata["name"], patch, kind="apply", namespace=metadata["namespace"], subresource="status",
            field_manager=FIELD_MANAGER, force=True,
        )  # fmt: skip

    async def _reserve(self, pod: Object, names: dict[str, str]) -> None:
        """A pod that came with its node: reserve what is allocated already, leave the rest alone."""
        metadata = pod["metadata"]
        for reference in pod["spec"].get("resourceClaims") or ():
            name = reference.get("resourceClaimName") or names.get(reference["name"])
            claim = self._claims.get(metadata["namespace"], name) if name else None
            if claim is None or claim["metadata"].get("deletionTimestamp"):
                continue
            status = claim.get("status") or {}
            users = status.get("reservedFor") or []
            if not status.get("allocation") or any(one.get("uid") == metadata["uid"] for one in users):
                continue
            if len(users) >= MAX_CONSUMERS:
                continue
            consumer = {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}
            reserved = {**claim, "status": {**status, "reservedFor": [*users, consumer]}}
            await self.client.update(RESOURCE_CLAIMS, reserved, subresource="status")

    def _failed(self, pod: Object, reference: Object, message: str) -> None:
        self._refused.add(key_of(pod))
        text = f"PodResourceClaim {reference['name']}: {message}"
        self._recorder.record(_typed(pod), "Warning", "FailedResourceClaimCreation", text)


class _OwnershipError(Exception):
    """The claim that the pod's status names belongs to somebody else."""


def claim_from_template(pod: Object, reference_name: str, template: Object) -> Object:
    """The claim to create for entry `reference_name` of the pod."""
    metadata, spec = pod["metadata"], template["spec"]
    wanted = spec.get("metadata") or {}
    claim: dict[str, Any] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": generate_name(metadata["name"], reference_name),
            "namespace": metadata["namespace"],
            "annotations": {**(wanted.get("annotations") or {}), CLAIM_NAME_ANNOTATION: reference_name},
            "ownerReferences": [owner_reference(pod, PODS, blocking=False)],
        },
        "spec": spec.get("spec") or {},
    }
    if wanted.get("labels"):
        claim["metadata"]["labels"] = dict(wanted["labels"])
    return claim


def generate_name(pod_name: str, reference_name: str) -> str:
    """``<pod>-<entry>-``; where that is too long, both parts shortened in proportion and no hyphen behind."""
    base = f"{pod_name}-{reference_name}-"
    if len(base) <= _MAX_BASE:
        return base
    pod_part, reference_part = (text[: len(text) * _MAX_BASE // len(base)] for text in (pod_name, reference_name))
    return f"{pod_part}-{reference_part}"


def _check_owner(claim: Object, pod: Object) -> None:
    owners = claim["metadata"].get("ownerReferences") or ()
    if not any(one.get("uid") == pod["metadata"]["uid"] and one.get("controller") for one in owners):
        namespace, name = key_of(claim)
        raise _OwnershipError(
            f"ResourceClaim {namespace}/{name} was not created for Pod {'/'.join(key_of(pod))} (Pod is not owner)"
        )


def _statuses(pod: Object) -> dict[str, str | None]:
    listed = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    return {one["name"]: one.get("resourceClaimName") for one in listed}


def _done(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _owning_pod_index(claim: Object) -> list[str]:
    return [
        one["uid"]
        for one in claim["metadata"].get("ownerReferences") or ()
        if one.get("controller") and one.get("kind") == "Pod"
    ]


def claims_of_pod(pod: Object) -> list[Key]:
    namespace = pod["metadata"]["namespace"]
    statuses = _statuses(pod)
    names = [
        one.get("resourceClaimName") or statuses.get(one["name"])
        for one in (pod.get("spec") or {}).get("resourceClaims") or ()
    ]
    names.append(((pod.get("status") or {}).get("extendedResourceClaimStatus") or {}).get("resourceClaimName"))
    return [(namespace, name) for name in names if name]


def _typed(pod: Object) -> Object:
    return {**pod, "apiVersion": "v1", "kind": "Pod"}
