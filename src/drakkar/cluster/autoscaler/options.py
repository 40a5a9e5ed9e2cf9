"""What a node group is and how the autoscaler is set, as data.

Fields of `Settings` are the flags of cluster-autoscaler in camelCase and have its defaults; times are in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["EXPANDERS", "GROUP_LABEL", "NodeGroup", "Provisioning", "Settings", "Stockout"]

GROUP_LABEL: Final = "drakkar.dev/node-group"
"""Every node of a group carries it, as `cloud.google.com/gke-nodepool` and the like."""

EXPANDERS: Final = ("random", "most-pods", "least-waste", "priority")


@dataclass(frozen=True, slots=True)
class Stockout:
    """From `after` seconds on the provider has no machine to give, for `lasting` seconds (None: for ever)."""

    after: float = 0.0
    lasting: float | None = None

    def holds(self, elapsed: float) -> bool:
        """Whether it holds `elapsed` seconds after the cluster became ready."""
        return self.after <= elapsed and (self.lasting is None or elapsed < self.after + self.lasting)


@dataclass(frozen=True, slots=True)
class Provisioning:
    """How the provider makes machines of a group.

    Attributes:
        delay: least and most seconds from the request to the registered Node; between them the seed decides.
        driver_delay: seconds from the registered Node until its drivers run and publish slices.
        failure_rate: the share of machines that never come up, 0 to 1; the seed decides which.
        quota: how many machines the provider gives this group at most, whatever its maximum; None: no limit.
        refused: the provider's API refuses to make the group larger.
    """

    delay: tuple[float, float] = (60.0, 60.0)
    driver_delay: float = 0.0
    failure_rate: float = 0.0
    quota: int | None = None
    refused: bool = False
    stockouts: tuple[Stockout, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Machines of one model that come and go together.

    Attributes:
        labels: what nodes register with, `GROUP_LABEL` among them.
        taints: for good; a pod that does not tolerate them is never helped by the group.
        startup_taints: nodes register with them too and lose them once their drivers have published; they are not
            part of the template.
        template_slices: whether the provider can say what slices a new node will have. Where it cannot, a group
            without nodes never helps a pod with claims (the state of AWS and others in 2026).
        partitions: drivers publish every partition there could be (NVIDIA's gate DynamicMIG).
    """

    name: str
    model: str
    minimum: int = 0
    maximum: int = 1
    initial: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[dict[str, str], ...] = ()
    startup_taints: tuple[dict[str, str], ...] = ()
    provisioning: Provisioning = Provisioning()
    template_slices: bool = True
    partitions: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """Flags of cluster-autoscaler; `priorities` is the content of the ConfigMap of its priority expander."""

    expander: tuple[str, ...] = ("least-waste",)
    priorities: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    scan_interval: float = 10.0
    max_nodes_total: int = 0
    max_node_provision_time: float = 900.0
    new_pod_scale_up_delay: float = 0.0
    expendable_pods_priority_cutoff: int = -10
    initial_node_group_backoff: float = 300.0
    max_node_group_backoff: float = 1800.0
    node_group_backoff_reset_timeout: float = 10800.0
    scale_down_enabled: bool = True
    scale_down_unneeded_time: float = 600.0
    scale_down_unready_time: float = 1200.0
    scale_down_utilization_threshold: float = 0.5
    scale_down_delay_after_add: float = 600.0
    scale_down_delay_after_delete: float = 0.0
    scale_down_delay_after_failure: float = 180.0
    unremovable_node_recheck_timeout: float = 300.0
    max_graceful_termination: float = 600.0
    max_pod_eviction_time: float = 120.0
    max_scale_down_parallelism: int = 10
    max_drain_parallelism: int = 1
    skip_nodes_with_system_pods: bool = True
    skip_nodes_with_local_storage: bool = True
    skip_nodes_with_custom_controller_pods: bool = True
    ignore_daemonsets_utilization: bool = False
