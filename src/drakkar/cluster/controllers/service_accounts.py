"""What every namespace starts with: the service account "default" and, if a CA is known, the config map that has it."""

from __future__ import annotations

from drakkar.cluster.controllers.controller import Context, Controller, Key, Object
from drakkar.kube.apierrors import ApiError
from drakkar.kube.resources import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS

CA_CONFIG_MAP = "kube-root-ca.crt"
_CA_NOTE = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)


class ServiceAccounts(Controller):
    """Keeps both there, also when somebody deletes them."""

    name = "serviceaccount-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._namespaces = self.watch(NAMESPACES, self.enqueue)
        self._accounts = self.watch(SERVICE_ACCOUNTS, self._on_content)
        self._maps = self.watch(CONFIG_MAPS, self._on_content)

    def _on_content(self, kind: str, old: Object | None, new: Object | None) -> None:
        obj = new or old
        if obj is not None and obj["metadata"]["name"] in ("default", CA_CONFIG_MAP):
            self.queue.add(("", obj["metadata"]["namespace"]))

    async def reconcile(self, key: Key) -> float | None:
        name = key[1]
        namespace = self._namespaces.get(None, name)
        if namespace is None or namespace["metadata"].get("deletionTimestamp"):
            return None
        if self._accounts.get(name, "default") is None:
            account: Object = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
            await self._create(SERVICE_ACCOUNTS, account, name)
        ca = self.context.root_ca
        if not ca:
            return None
        present = self._maps.get(name, CA_CONFIG_MAP)
        data = {"ca.crt": ca}
        if present is None:
            metadata = {"name": CA_CONFIG_MAP, "annotations": {"kubernetes.io/description": _CA_NOTE}}
            await self._create(
                CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}, name
            )
        elif present.get("data") != data:
            await self.client.update(CONFIG_MAPS, {**present, "data": data})
        return None

    async def _create(self, resource: object, obj: Object, namespace: str) -> None:
        try:
            await self.client.create(resource, obj, namespace)  # type: ignore[arg-type]
        except ApiError as error:
            # A namespace that is just going away refuses new content.
            if not (error.already_exists or error.not_found or error.reason == "Forbidden"):
                raise
