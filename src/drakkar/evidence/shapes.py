"""The shapes of the objects in a snapshot: the fields that Drakkar reads, and what type they have.

Fields beside them are nobody's business here (core/v1, apps/v1, batch/v1, scheduling.k8s.io/v1, resource.k8s.io/v1).
What `drakkar.allocation` reads of slices, classes and claims is described there and used from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from drakkar.allocation import shapes as devices
from drakkar.allocation.shapes import Amount, NodeSelector, Requirement, Shape, Texts

__all__ = ["SHAPES", "Other"]

Labels = dict[str, str | None] | None
IntOrText = Annotated[int, msgspec.Meta(ge=0)] | Annotated[str, msgspec.Meta(pattern=r"^[0-9]+%$")] | None


class Owner(Shape):
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None


class Metadata(devices.Metadata):
    generate_name: str | None = None
    resource_version: str | None = None
    deletion_timestamp: str | None = None
    finalizers: Texts = None
    owner_references: list[Owner] | None = None


class NamedMetadata(Metadata, kw_only=True):
    name: str


class Named(Shape):
    """An object that must have a name."""

    metadata: NamedMetadata


class Condition(Shape):
    type: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class Taint(Shape):
    key: str | None = None
    value: str | None = None
    effect: str | None = None
    time_added: str | None = None


class NodeSpec(Shape):
    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeStatus(devices.NodeStatus):
    allocatable: dict[str, Amount] | None = None
    capacity: dict[str, Amount] | None = None
    conditions: list[Condition] | None = None


class Node(Named):
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class ClaimOfContainer(Shape):
    name: str | None = None
    request: str | None = None


class Resources(Shape):
    requests: dict[str, Amount] | None = None
    limits: dict[str, Amount] | None = None
    claims: list[ClaimOfContainer] | None = None


class Port(Shape):
    host_port: int | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    protocol: str | None = None


class Container(Shape):
    name: str
    resources: Resources | None = None
    restart_policy: str | None = None
    ports: list[Port] | None = None


class ClaimEntry(Shape):
    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class Toleration(Shape):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class LabelSelector(Shape):
    match_labels: Labels = None
    match_expressions: list[Requirement] | None = None


class Spread(Shape):
    topology_key: str | None = None
    max_skew: int | None = None
    min_domains: int | None = None
    when_unsatisfiable: str | None = None
    label_selector: LabelSelector | None = None
    match_label_keys: Texts = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class PreferredNode(Shape):
    weight: int | None = None
    preference: devices.Term | None = None


class NodeAffinity(Shape):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredNode] | None = None


class PodTerm(Shape):
    label_selector: LabelSelector | None = None
    namespaces: Texts = None
    namespace_selector: LabelSelector | None = None
    topology_key: str | None = None
    match_label_keys: Texts = None
    mismatch_label_keys: Texts = None


class WeightedPodTerm(Shape):
    weight: int | None = None
    pod_affinity_term: PodTerm | None = None


class PodAffinity(Shape):
    required_during_scheduling_ignored_during_execution: list[PodTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodTerm] | None = None


class Affinity(Shape):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Gate(Shape):
    name: str | None = None


class PodSpec(Shape):
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    node_name: str | None = None
    node_selector: Labels = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    topology_spread_constraints: list[Spread] | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    scheduling_gates: list[Gate] | None = None
    scheduler_name: str | None = None
    overhead: dict[str, Amount] | None = None
    resources: Resources | None = None
    host_network: bool | None = None
    resource_claims: list[ClaimEntry] | None = None
    restart_policy: str | None = None


class ClaimNameOfPod(Shape):
    name: str
    resource_claim_name: str | None = None


class Mapped(Shape):
    container_name: str | None = None
    resource_name: str | None = None
    request_name: str | None = None


class Extended(Shape):
    resource_claim_name: str | None = None
    request_mappings: list[Mapped] | None = None


class Running(Shape):
    started_at: str | None = None


class Waiting(Shape):
    reason: str | None = None
    message: str | None = None


class Terminated(Shape):
    reason: str | None = None
    message: str | None = None
    exit_code: int | None = None


class State(Shape):
    running: Running | None = None
    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(Shape):
    name: str | None = None
    ready: bool | None = None
    restart_count: int | None = None
    state: State | None = None
    last_state: State | None = None


class PodStatus(Shape):
    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    start_time: str | None = None
    conditions: list[Condition] | None = None
    nominated_node_name: str | None = None
    resource_claim_statuses: list[ClaimNameOfPod] | None = None
    extended_resource_claim_status: Extended | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    ephemeral_container_statuses: list[ContainerStatus] | None = None


class Pod(Named):
    spec: PodSpec | None = None
    status: PodStatus | None = None


class TemplateMetadata(Shape):
    labels: Labels = None
    annotations: Labels = None


class PodTemplate(Shape):
    spec: PodSpec
    metadata: TemplateMetadata | None = None


class RollingUpdate(Shape):
    max_surge: IntOrText = None
    max_unavailable: IntOrText = None


class Strategy(Shape):
    type: str | None = None
    rolling_update: RollingUpdate | None = None


class WorkloadSpec(Shape):
    template: PodTemplate
    replicas: int | None = None
    selector: LabelSelector | None = None
    strategy: Strategy | None = None
    update_strategy: Strategy | None = None


class Workload(Named):
    spec: WorkloadSpec


class JobSpec(Shape):
    template: PodTemplate
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None


class Job(Named):
    spec: JobSpec


class JobTemplate(Shape):
    spec: JobSpec
    metadata: TemplateMetadata | None = None


class CronJobSpec(Shape):
    job_template: JobTemplate
    suspend: bool | None = None


class CronJob(Named):
    spec: CronJobSpec


class Result(devices.Result):
    request: str | None = None
    binding_conditions: Texts = None
    binding_failure_conditions: Texts = None
    tolerations: list[Toleration] | None = None


class Results(Shape):
    results: list[Result] | None = None
    config: list[dict[str, Any]] | None = None


class Allocated(Shape):
    devices: Results | None = None
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class Consumer(Shape):
    name: str | None = None
    uid: str | None = None
    resource: str | None = None
    api_group: str | None = None


class DeviceReport(Shape):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    conditions: list[Condition] | None = None


class ClaimStatus(Shape):
    allocation: Allocated | None = None
    reserved_for: list[Consumer] | None = None
    devices: list[DeviceReport] | None = None


class Claim(Named):
    spec: devices.ClaimSpec
    status: ClaimStatus | None = None


class ClaimTemplateSpec(Shape):
    spec: devices.ClaimSpec
    metadata: TemplateMetadata | None = None


class ClaimTemplate(Named):
    spec: ClaimTemplateSpec


class Slice(Named):
    spec: devices.SliceSpec


class DeviceClass(Named):
    spec: devices.ClassSpec | None = None


class DeviceSelector(Shape):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class RuleSpec(Shape):
    taint: Taint
    device_selector: DeviceSelector | None = None


class Rule(Named):
    spec: RuleSpec


class QuotaStatus(Shape):
    hard: dict[str, Amount] | None = None
    used: dict[str, Amount] | None = None


class QuotaScope(Shape):
    scope_name: str
    operator: str | None = None
    values: Texts = None


class QuotaScopes(Shape):
    match_expressions: list[QuotaScope] | None = None


class QuotaSpec(Shape):
    hard: dict[str, Amount] | None = None
    scopes: Texts = None
    scope_selector: QuotaScopes | None = None


class Quota(Named):
    spec: QuotaSpec | None = None
    status: QuotaStatus | None = None


class PriorityClass(Named):
    value: int
    preemption_policy: str | None = None
    global_default: bool | None = None


class Involved(Shape):
    kind: str | None = None
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None


class Series(Shape):
    last_observed_time: str | None = None


class Source(Shape):
    component: str | None = None
    host: str | None = None


class Event(Shape):
    metadata: Metadata | None = None
    involved_object: Involved | None = None
    regarding: Involved | None = None
    series: Series | None = None
    source: Source | None = None
    reason: str | None = None
    message: str | None = None
    note: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None


class Other(Shape):
    metadata: Metadata | None = None


SHAPES: Final[Mapping[str, type[Shape]]] = {
    "Pod": Pod,
    "Node": Node,
    "Namespace": Named,
    "Event": Event,
    "ResourceQuota": Quota,
    "PriorityClass": PriorityClass,
    **dict.fromkeys(("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"), Workload),
    "Job": Job,
    "CronJob": CronJob,
    "ResourceClaim": Claim,
    "ResourceClaimTemplate": ClaimTemplate,
    "ResourceSlice": Slice,
    "DeviceClass": DeviceClass,
    "DeviceTaintRule": Rule,
}
"""The shape of each kind that is looked at; of other kinds only the metadata must be right."""
