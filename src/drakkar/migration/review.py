"""Everything that one review looks at, with the questions that rules ask of it.

A rule that compares two files says nothing when the other one is not there; so the answers here distinguish "no" from
"nobody said". What is only recorded (`inventory`) is never reviewed itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from drakkar.kube.paths import value_at
from drakkar.migration.charts import Values, values_of
from drakkar.migration.claims import Claim, claim_of
from drakkar.migration.components import Component, components_of
from drakkar.migration.context import Context, kubernetes
from drakkar.migration.documents import Csv, Document, Source, Toml
from drakkar.migration.drivers import DeviceKind, driver_of_class, kinds_of_class, kinds_of_selectors
from drakkar.migration.pods import PodClaim, PodTemplate, pod_templates

__all__ = ["Review"]


class Review:
    """The sources of a review, what is recorded of the cluster, and the versions they are meant for."""

    def __init__(
        self, sources: Sequence[Source], inventory: Iterable[Mapping[str, Any]] | None, context: Context
    ) -> None:
        self.sources = sources
        self.context = context
        self.minor = context.minor
        self.inventory = tuple(inventory or ())

    @cached_property
    def documents(self) -> list[Document]:
        """All documents, values included."""
        return [source for source in self.sources if isinstance(source, Document)]

    @cached_property
    def counter_files(self) -> list[Csv]:
        """All counter files."""
        return [source for source in self.sources if isinstance(source, Csv)]

    @cached_property
    def tomls(self) -> list[Toml]:
        """All TOML files."""
        return [source for source in self.sources if isinstance(source, Toml)]

    def kind(self, *kinds: str) -> list[Document]:
        """Documents of these kinds."""
        return [document for document in self.documents if document.kind in kinds]

    def recorded(self, kind: str) -> list[Mapping[str, Any]]:
        """Recorded objects of a kind."""
        return [obj for obj in self.inventory if obj.get("kind") == kind]

    @cached_property
    def values(self) -> list[Values]:
        """All chart values."""
        return values_of(self.documents)

    def chart(self, name: str) -> list[Values]:
        """The values of one chart."""
        return [values for values in self.values if values.chart == name]

    @cached_property
    def pods(self) -> list[PodTemplate]:
        """Every pod template."""
        return [template for document in self.documents for template in pod_templates(document)]

    @cached_property
    def claims(self) -> list[Claim]:
        """Every claim and claim template whose API version is served; others need a rewrite first."""
        return [claim for document in self.documents if self.served(document) and (claim := claim_of(document))]

    @cached_property
    def components(self) -> list[Component]:
        """Configuration of Kubernetes' own components."""
        return [component for document in self.documents for component in components_of(document)]

    def gate(self, name: str, component: str = "apiserver") -> bool:
        """Whether a gate is on: as the input configures the component, else as the version has it."""
        for configured in self.components:
            if configured.name == component:
                for gate in configured.gates:
                    if gate.name == name:
                        return gate.value
        known = kubernetes().gates.get(name)
        return known is not None and known.enabled(self.minor)

    def served(self, document: Document) -> bool:
        """Whether the API server serves the document's version."""
        return kubernetes().served(document.group, document.version, document.kind, self.minor, self.runtime_config)

    @cached_property
    def runtime_config(self) -> Mapping[str, bool]:
        """API versions that the input switches on or off in the API server."""
        found: dict[str, bool] = {}
        for component in self.components:
            found |= component.runtime_config
        return found

    # -- claims ------------------------------------------------------------------------------------------------------

    def claim(self, pod: PodTemplate, entry: PodClaim) -> Claim | None:
        """The claim or template that a pod's entry refers to, in its namespace; None if it is not in the input."""
        _, kind, name = entry.target
        named = self._claims_by_name.get((kind, name), {})
        own = pod.document.namespace
        return (named.get(own) or named.get("")) if own else next(iter(named.values()), None)

    def namespaces_of(self, kind: str, name: str) -> list[str]:
        """Namespaces in which a claim or template of that name is."""
        return sorted(self._claims_by_name.get((kind, name), {}))

    @cached_property
    def _claims_by_name(self) -> dict[tuple[str, str], dict[str, Claim]]:
        found: dict[tuple[str, str], dict[str, Claim]] = {}
        for claim in self.claims:
            document = claim.document
            found.setdefault((document.kind, document.name), {}).setdefault(document.namespace, claim)
        return found

    def drivers(self, pod: PodTemplate, entry: PodClaim) -> set[str] | None:
        """Drivers whose devices an entry of a pod gets; None if nobody said."""
        claim = self.claim(pod, entry)
        if claim is not None:
            return {self.driver(request.class_name) for request in claim.requests()}
        _, _, name = entry.target
        if any(domain_name == name and _same(domain, pod.document) for domain, domain_name in self._channels):
            return {"compute-domain.nvidia.com"}
        return None

    @cached_property
    def _channels(self) -> list[tuple[Document, str]]:
        steps = ("spec", "channel", "resourceClaimTemplate", "name")
        return [(document, str(document.at(steps))) for document in self.kind("ComputeDomain")]

    def gpu_claims(self, pod: PodTemplate, *, unknown: bool) -> list[PodClaim]:
        """The pod's claims for GPUs; with `unknown` those about which nobody said anything, too."""
        found = []
        for entry in pod.claims:
            drivers = self.drivers(pod, entry)
            if (drivers is None and unknown) or (drivers and "gpu.nvidia.com" in drivers):
                found.append(entry)
        return found

    @cached_property
    def wants_gpus(self) -> bool:
        """Whether the input has claims for GPUs or the driver that serves them."""
        return self.dra_serves_gpus or any(
            self.driver(request.class_name) == "gpu.nvidia.com" for claim in self.claims for request in claim.requests()
        )

    @property
    def dra_serves_gpus(self) -> bool:
        """Whether the input installs the DRA driver for GPUs."""
        return any(values.get("resources", "gpus", "enabled") is True for values in self.chart("dra")) or bool(
            self.kind("GPUCluster")
        )

    # -- classes -----------------------------------------------------------------------------------------------------

    @cached_property
    def classes(self) -> dict[str, Mapping[str, Any]]:
        """DeviceClasses by name: those of the input, else those recorded."""
        found = {str(value_at(obj, ("metadata", "name"))): obj for obj in self.recorded("DeviceClass")}
        return found | {document.name: document.value for document in self.kind("DeviceClass")}

    def driver(self, class_name: str) -> str:
        """The driver whose devices a class selects, "" if unknown."""
        kinds = self.device_kinds(class_name)
        return kinds[0].driver if kinds else driver_of_class(self.classes.get(class_name))

    def device_kinds(self, class_name: str) -> list[DeviceKind]:
        """What is known of the devices of a class: all kinds that it may select, empty if it is not known."""
        known = kinds_of_class(class_name, self.context.driver)
        if known or class_name not in self.classes:
            return known
        return kinds_of_selectors(self.classes[class_name], self.context.driver)

    def extended_resource(self, class_name: str) -> str | None:
        """The extended resource that a class maps to; None if nobody said."""
        obj = self.classes.get(class_name)
        if obj is not None:
            return str(value_at(obj, ("spec", "extendedResourceName")) or "")
        return None

    def iterate_requests(self) -> Iterator[tuple[Claim, Any]]:
        """Every request of every claim."""
        for claim in self.claims:
            for request in claim.requests():
                yield claim, request


def _same(left: Document, right: Document) -> bool:
    """Whether two documents land in the same namespace; one that names none goes where the other goes."""
    return not left.namespace or not right.namespace or left.namespace == right.namespace
