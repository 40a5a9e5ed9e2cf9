"""The ConfigMap of the priority expander: made from the settings, then its editors' to change."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from drakkar.cluster.autoscaler.expanders import read_priorities
from drakkar.cluster.autoscaler.status import NAMESPACE
from drakkar.errors import DrakkarError
from drakkar.kube import yamltext
from drakkar.kube.apierrors import ApiError
from drakkar.kube.client import Client
from drakkar.kube.events import EventRecorder
from drakkar.kube.resources import CONFIG_MAPS

__all__ = ["NAME", "Priorities"]

NAME: Final = "cluster-autoscaler-priority-expander"
_log = logging.getLogger(__name__)


class Priorities:
    """The ConfigMap ``kube-system/cluster-autoscaler-priority-expander``."""

    def __init__(self, client: Client, recorder: EventRecorder) -> None:
        self._client, self._recorder = client, recorder

    async def write(self, priorities: Mapping[int, Sequence[str]]) -> None:
        """Make it, if there are any; one that is there already is left alone. Raises `ApiError`."""
        if not priorities:
            return
        lines = [f"{number}: {list(names)!r}\n" for number, names in sorted(priorities.items())]
        wanted = {"metadata": {"name": NAME}, "data": {"priorities": "".join(lines)}}
        try:
            await self._client.create(CONFIG_MAPS, wanted, NAMESPACE)
        except ApiError as error:
            if not error.already_exists:
                raise

    async def read(self) -> dict[int, tuple[str, ...]] | None:
        """What it says now; None where that cannot be read: nothing is chosen then, and an event says why."""
        try:
            found = await self._client.get(CONFIG_MAPS, NAME, NAMESPACE)
        except ApiError as error:
            _log.info("priorities of node groups: %s", error.message)
            return None
        try:
            value = yamltext.load(str((found.get("data") or {}).get("priorities") or "").encode())
            return read_priorities(value, "priorities")
        except (yamltext.YamlError, DrakkarError) as error:
            text = f"Wrong configuration for priority expander: {error}. Ignoring update."
            about = {**found, "apiVersion": "v1", "kind": "ConfigMap"}
            self._recorder.record(about, "Warning", "PriorityConfigMapInvalid", text)
            return None
