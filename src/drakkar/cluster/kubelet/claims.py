"""Claims of this node's pods: checked, prepared once per claim, and unprepared after the last pod that uses them.

Everything that can go wrong without touching state is checked first (the claim exists, belongs to the pod, is reserved
for it, its drivers are registered), so that a pod which fails can be deleted without asking a driver that never came.
Then the claim goes into the checkpoint *before* the driver is called: whatever happens from there on, a later kubelet
knows that it may have to unprepare.

KEP-4381; the order of the checks and all texts are the kubelet's (1.34 to 1.37).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from drakkar.cluster.kubelet import podspec
from drakkar.cluster.kubelet.checkpoint import Checkpoint, ClaimInfo, PreparedDevice
from drakkar.cluster.kubelet.plugins import Plugin, PluginRegistry
from drakkar.cluster.kubelet.podspec import Pod, Spec
from drakkar.errors import DrakkarError
from drakkar.kube.client import ApiError, Client
from drakkar.kube.resources import RESOURCE_CLAIMS


class ClaimError(DrakkarError):
    """A pod's claims cannot be prepared (or unprepared) now."""


class NodeClaims:
    """The claims prepared on one node, by namespace and name."""

    def __init__(self, client: Client, plugins: PluginRegistry, root: Path) -> None:
        self._client = client
        self._plugins = plugins
        self._checkpoint = Checkpoint(root)
        self._claims: dict[tuple[str, str], ClaimInfo] = {}
        # A claim shared by several pods must not be prepared by two of them at once, nor unprepared meanwhile.
        self._locks: dict[tuple[str, str], tuple[asyncio.Lock, list[None]]] = {}

    def load(self) -> None:
        """Remember what an earlier kubelet wrote down."""
        self._claims = {(claim.namespace, claim.name): claim for claim in self._checkpoint.load()}

    def __iter__(self) -> Any:
        return iter(list(self._claims.values()))

    def get(self, namespace: str, name: str) -> ClaimInfo | None:
        return self._claims.get((namespace, name))

    def uses(self, pod_uid: str) -> bool:
        """Whether some claim is still held for the pod."""
        return any(pod_uid in claim.pods for claim in self._claims.values())

    async def prepare(self, pod: Pod) -> None:
        """Have every claim of the pod prepared. Raises `ClaimError` with the kubelet's text; may be repeated."""
        try:
            checked = await self._check(pod)
            if not checked:
                return
            async with self._held((claim.namespace, claim.name) for claim, _ in checked):
                await self._prepare(pod, checked)
        except DrakkarError as error:
            raise ClaimError(
                f"prepare dynamic resources: {error.message}",
                reason=error.reason,
                subject=f"Pod/{podspec.key(pod)}",
                next_step=error.next_step,
            ) from error

    async def unprepare(self, pod: Pod) -> None:
        """Give back what only this pod used. Raises `ClaimError`; claims are kept until a driver has agreed."""
        uid, namespace = podspec.uid(pod), pod["metadata"]["namespace"]
        names = {claim.name for claim in self._claims.values() if uid in claim.pods}
        if not names:
            with contextlib.suppress(DrakkarError):
                names = {claim.claim_name for claim in podspec.pod_claims(pod) if claim.claim_name is not None}
        await self.unprepare_named(uid, namespace, names)

    async def unprepare_named(self, pod_uid: str, namespace: str, names: Iterable[str]) -> None:
        """The same by names, for pods that are not known any more."""
        keys = [(namespace, name) for name in names]
        try:
            async with self._held(keys):
                await self._unprepare(pod_uid, [self._claims[key] for key in keys if key in self._claims])
        except DrakkarError as error:
            raise ClaimError(
                f"unprepare dynamic resources: {error.message}", reason=error.reason, subject=error.subject
            ) from error

    def cdi_devices(self, pod: Pod, container: Spec) -> list[str]:
        """Qualified CDI names for one container, in the order of its claims. Raises `ClaimError` if unprepared."""
        found: list[str] = []
        for use in podspec.container_claims(pod, container):
            claim = self._claims.get((pod["metadata"]["namespace"], use.claim_name))
            if claim is None:
                raise ClaimError(
                    f"internal error: unable to get claim info for ResourceClaim {use.claim_name} in namespace "
                    f"{pod['metadata']['namespace']}",
                    subject=f"Pod/{podspec.key(pod)}",
                )
            found += [name for _, device in devices_for(claim, use.request) for name in device.cdi_ids]
        return list(dict.fromkeys(found))

    # Preparing

    async def _check(self, pod: Pod) -> list[tuple[ClaimInfo, dict[str, Plugin]]]:
        checked = []
        for entry in podspec.pod_claims(pod):
            if entry.claim_name is None:
                continue
            namespace = pod["metadata"]["namespace"]
            try:
                claim = await self._client.get(RESOURCE_CLAIMS, entry.claim_name, namespace)
            except ApiError as error:
                raise ClaimError(f"fetch ResourceClaim {entry.claim_name}: {error.message}") from error
            if entry.from_template and not podspec.is_owned_by(claim, pod):
                raise ClaimError(
                    f"ResourceClaim {namespace}/{entry.claim_name} was not created for Pod {podspec.key(pod)} "
                    "(Pod is not owner)"
                )
            if not podspec.is_reserved_for(claim, pod):
                raise ClaimError(
                    f"pod {pod['metadata']['name']} ({podspec.uid(pod)}) is not allowed to use ResourceClaim "
                    f"{entry.claim_name} ({claim['metadata']['uid']})",
                    reason="ClaimNotReserved",
                    next_step="pods with spec.nodeName bypass the scheduler, which is what reserves claims; use a "
                    "nodeSelector instead",
                )
            info = _claim_info(claim)
            checked.append((info, {driver: self._plugins.get(driver) for driver in info.drivers}))
        return checked

    async def _prepare(self, pod: Pod, checked: list[tuple[ClaimInfo, dict[str, Plugin]]]) -> None:
        batches: dict[Plugin, list[ClaimInfo]] = {}
        fresh: list[ClaimInfo] = []
        for info, plugins in checked:
            key = (info.namespace, info.name)
            known = self._claims.setdefault(key, info)
            if known.uid != info.uid:
                raise ClaimError(
                    f"old ResourceClaim with same name {info.name} and different UID {known.uid} still exists "
                    "(previous pod force-deleted?!)"
                )
            known.pods.add(podspec.uid(pod))
            if not known.prepared:
                fresh.append(known)
                for plugin in plugins.values():
                    batches.setdefault(plugin, []).append(known)
        self._save()
        for plugin, claims in batches.items():
            response = await plugin.prepare([(claim.namespace, claim.uid, claim.name) for claim in claims])
            _answers("NodePrepareResources", claims, response.claims)
            for claim in claims:
                claim.drivers[plugin.driver] = [_device(entry) for entry in response.claims[claim.uid].devices]
        for claim in fresh:
            claim.prepared = True
        self._save()

    async def _unprepare(self, pod_uid: str, claims: list[ClaimInfo]) -> None:
        batches: dict[str, list[ClaimInfo]] = {}
        last: list[ClaimInfo] = []
        for claim in claims:
            if claim.pods - {pod_uid}:
                claim.pods.discard(pod_uid)
                continue
            last.append(claim)
            # From here on nobody may rely on it: a new pod has to prepare it again, even if a driver fails half-way.
            claim.prepared = False
            for driver in claim.drivers:
                batches.setdefault(driver, []).append(claim)
        for driver, batch in batches.items():
            response = await self._plugins.get(driver).unprepare(
                [(claim.namespace, claim.uid, claim.name) for claim in batch]
            )
            _answers("NodeUnprepareResources", batch, response.claims)
        for claim in last:
            self._claims.pop((claim.namespace, claim.name), None)
        self._save()

    def _save(self) -> None:
        try:
            self._checkpoint.store(list(self._claims.values()))
        except OSError as error:
            raise ClaimError(
                f"checkpoint ResourceClaim cache: {error.strerror or error}", subject=str(self._checkpoint.path)
            ) from error

    @contextlib.asynccontextmanager
    async def _held(self, keys: Iterable[tuple[str, str]]) -> Any:
        ordered = sorted(set(keys))  # one order for everybody: no deadlock between pods that share several claims
        async with contextlib.AsyncExitStack() as stack:
            for key in ordered:
                lock, users = self._locks.setdefault(key, (asyncio.Lock(), []))
                users.append(None)
                stack.callback(self._leave, key, users)
                await stack.enter_async_context(lock)
            yield

    def _leave(self, key: tuple[str, str], users: list[None]) -> None:
        users.pop()
        if not users:
            self._locks.pop(key, None)


def devices_for(claim: ClaimInfo, request: str) -> list[tuple[str, PreparedDevice]]:
    """(driver, device) of a claim that serve `request` ("" for all; a subrequest counts for its request)."""
    base = request.partition("/")[0]
    return [
        (driver, device)
        for driver, devices in claim.drivers.items()
        for device in devices
        if not base or not device.requests or base in device.requests
    ]


def _claim_info(claim: dict[str, Any]) -> ClaimInfo:
    metadata = claim["metadata"]
    allocation = (claim.get("status") or {}).get("allocation")
    if allocation is None:
        raise ClaimError(f"ResourceClaim {metadata['name']}: claim {podspec.key(claim)} is not allocated")
    results = (allocation.get("devices") or {}).get("results") or ()
    drivers: dict[str, list[PreparedDevice]] = {result["driver"]: [] for result in results}
    return ClaimInfo(metadata["uid"], metadata["name"], metadata["namespace"], drivers=drivers)


def _answers(call: str, claims: list[ClaimInfo], answers: Any) -> None:
    """Check that a driver answered for exactly the claims it was asked about."""
    names = {claim.uid: claim.name for claim in claims}
    for uid in answers:
        if uid not in names:
            raise ClaimError(f"{call} returned result for unknown claim UID {uid}")
        if answers[uid].error:
            raise ClaimError(
                f"{call} failed for ResourceClaim {names[uid]}: {answers[uid].error}", reason="DriverRefused"
            )
    if len(answers) != len(claims):
        raise ClaimError(f"{call} skipped {len(claims) - len(answers)} ResourceClaims")


def _device(entry: Any) -> PreparedDevice:
    share = entry.share_id if "share_id" in entry.DESCRIPTOR.fields_by_name and entry.HasField("share_id") else None
    return PreparedDevice(
        entry.pool_name, entry.device_name, tuple(entry.request_names), tuple(entry.cdi_device_ids), share
    )
