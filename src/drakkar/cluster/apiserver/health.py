"""Health: the names of a real server's checks, and the answer that each of them gets here.

Tools wait for single checks by name (`/readyz/poststarthook/rbac/bootstrap-roles`) and list them all. Whatever a check
is about either happens before this server listens or does not exist here; who is answered at all is answered "ok".
"""

from __future__ import annotations

from typing import Final

_HOOKS: Final = tuple(
    f"poststarthook/{name}"
    for name in (
        "apiservice-discovery-controller", "apiservice-openapi-controller", "apiservice-openapiv3-controller",
        "apiservice-registration-controller", "apiservice-status-local-available-controller",
        "apiservice-status-remote-available-controller", "bootstrap-controller", "crd-informer-synced",
        "generic-apiserver-start-informers", "kube-apiserver-autoregistration", "peer-endpoint-reconciler-controller",
        "priority-and-fairness-config-consumer", "priority-and-fairness-config-producer",
        "priority-and-fairness-filter", "rbac/bootstrap-roles", "scheduling/bootstrap-system-priority-classes",
        "start-apiextensions-controllers", "start-apiextensions-informers", "start-apiserver-admission-initializer",
        "start-cluster-authentication-info-controller", "start-kube-aggregator-informers",
        "start-kube-apiserver-identity-lease-controller",
        "start-kube-apiserver-identity-lease-garbage-collector", "start-kubernetes-service-cidr-controller",
        "start-legacy-token-tracking-controller", "start-service-ip-repair-controllers",
        "start-system-namespaces-controller", "storage-object-count-tracker-hook", "storage-readiness",
    )
)  # fmt: skip
_COMMON: Final = ("ping", "log", "etcd", *_HOOKS, "autoregister-completion")
CHECKS: Final = {
    "healthz": (*_COMMON, "loopback-serving-certificate"),
    "livez": (*_COMMON, "loopback-serving-certificate"),
    "readyz": (*_COMMON, "etcd-readiness", "informer-sync", "shutdown"),
}
"""The checks of each endpoint."""


def text(path: str, *, verbose: bool) -> str | None:
    """What `/readyz` and its like answer; None if there is no such check."""
    kind, _, check = path.strip("/").partition("/")
    if check and check not in CHECKS[kind]:
        return None
    if not verbose:
        return "ok"
    listed = [check] if check else CHECKS[kind]
    return "".join(f"[+]{name} ok\n" for name in listed) + f"{kind} check passed\n"


def levels() -> str:
    """`/metrics/slis`: one gauge per check."""
    lines = [
        "# HELP kubernetes_healthcheck [STABLE] This metric records the result of all healthchecks.",
        "# TYPE kubernetes_healthcheck gauge",
    ]
    lines += [
        f'kubernetes_healthcheck{{name="{name}",type="{kind}"}} 1' for kind in sorted(CHECKS) for name in CHECKS[kind]
    ]
    return "\n".join(lines) + "\n"
