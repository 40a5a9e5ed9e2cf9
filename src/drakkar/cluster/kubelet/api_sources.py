"""Config maps, secrets and tokens for pods, read from the API when a pod starts.

A kubelet watches what its pods reference; reading at start is enough here, because files of running pods are not
rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drakkar.cluster.kubelet.podspec import Pod
from drakkar.kube.client import ApiError, Client
from drakkar.kube.resources import CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS, Resource


class ApiSources:
    """`environment.Sources` and `volumes.TokenSource` over an API client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def config_map(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        return await self._get(CONFIG_MAPS, namespace, name)

    async def secret(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        return await self._get(SECRETS, namespace, name)

    async def token(self, pod: Pod, audience: str, seconds: int) -> str:
        """A token of the pod's service account, bound to the pod. Raises `ApiError`."""
        metadata = pod["metadata"]
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {
                "name": pod["spec"].get("serviceAccountName") or "default",
                "namespace": metadata["namespace"],
            },
            "spec": {
                "audiences": [audience] if audience else [],
                "expirationSeconds": seconds,
                "boundObjectRef": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                },
            },
        }
        answer = await self._client.create(SERVICE_ACCOUNTS, request, subresource="token")
        return str(answer["status"]["token"])

    async def _get(self, resource: Resource, namespace: str, name: str) -> Mapping[str, Any] | None:
        try:
            return await self._client.get(resource, name, namespace)
        except ApiError as error:
            if error.not_found:
                return None
            raise
