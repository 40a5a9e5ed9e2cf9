"""Who owns what: rights read as RBAC means them, and leftovers told apart from what is in use."""

from __future__ import annotations

from typing import Any

import pytest

from drakkar.diagnosis.ownership import Audit, audit
from drakkar.diagnosis.rights import ADMIN_LABEL, holders
from drakkar.evidence.snapshot import Snapshot
from tests.diagnosis.world import claim, devices, gpu, meta, node, piece, pod, template, world

Object = dict[str, Any]


def role(name: str, *rules: Object, namespace: str = "") -> Object:
    kind = "Role" if namespace else "ClusterRole"
    return {"kind": kind, "metadata": meta(kind, name, namespace), "rules": list(rules)}


def rule(resources: list[str], verbs: list[str], groups: list[str] | None = None, **more: Any) -> Object:
    return {"apiGroups": groups or ["resource.k8s.io"], "resources": resources, "verbs": verbs, **more}


def binding(to: Object, *subjects: Object, namespace: str = "") -> Object:
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    name = to["metadata"]["name"]
    return {
        "kind": kind,
        "metadata": meta(kind, f"{name}-binding", namespace),
        "roleRef": {"kind": to["kind"], "name": name},
        "subjects": list(subjects),
    }


def user(name: str) -> Object:
    return {"kind": "User", "name": name}


def account(namespace: str, name: str) -> Object:
    return {"kind": "ServiceAccount", "namespace": namespace, "name": name}


def space(name: str, *, admin: bool = False) -> Object:
    labels = {ADMIN_LABEL: "true"} if admin else {}
    return {"kind": "Namespace", "metadata": meta("Namespace", name, labels=labels)}


def codes(found: Audit) -> dict[str, list[str]]:
    told: dict[str, list[str]] = {}
    for notice in found.notices:
        told.setdefault(notice.code, []).append(notice.subject)
    return told


@pytest.mark.parametrize(
    ("given", "right", "has"),
    [
        (rule(["resourceclaims"], ["create"]), "create-claims", True),
        (rule(["*"], ["*"], ["*"]), "create-claims", True),
        (rule(["*"], ["*"], ["*"]), "write-claim-status", True),
        (rule(["resourceclaims"], ["get", "list"]), "create-claims", False),
        (rule(["resourceclaims"], ["create"], ["apps"]), "create-claims", False),
        (rule(["resourceclaims"], ["*"]), "write-claim-status", False),
        (rule(["resourceclaims/status"], ["patch"]), "write-claim-status", True),
        (rule(["*/status"], ["update"]), "write-claim-status", True),
        (rule(["resourceclaims/binding"], ["update"]), "write-claim-binding", True),
        (rule(["namespaces"], ["patch"], [""]), "label-namespaces", True),
        (rule(["namespaces"], ["create"], [""]), "label-namespaces", False),
    ],
)
def test_a_rule_gives_what_it_says(given: Object, right: str, has: bool) -> None:
    mine = role("r", given)
    found = holders(Snapshot((mine, binding(mine, user("u")))))
    assert (right in {holder.right.code for holder in found}) is has


def test_a_cluster_role_bound_in_a_namespace_holds_there_only() -> None:
    mine = role("r", rule(["resourceclaims"], ["create"]))
    (holder,) = holders(Snapshot((mine, binding(mine, user("u"), namespace="ml"))))
    assert (holder.who, holder.namespace, holder.by_design) == ("User u", "ml", False)
    assert holder.through == "RoleBinding/ml/r-binding → ClusterRole/r"


def test_a_role_of_another_namespace_gives_nothing() -> None:
    mine = role("r", rule(["resourceclaims"], ["create"]), namespace="other")
    assert holders(Snapshot((mine, binding(mine, user("u"), namespace="ml")))) == []


def test_who_can_see_every_device_by_claim_or_by_label() -> None:
    edit = role("edit", rule(["resourceclaims"], ["create"]))
    label = role("label", rule(["namespaces"], ["patch"], [""]))
    found = audit(
        Snapshot(
            (
                space("monitoring", admin=True), space("ml"), edit, label,
                binding(edit, user("ann"), namespace="monitoring"),
                binding(edit, user("bob"), namespace="ml"),
                binding(label, user("bob"), user("eve")),
            )
        )
    )  # fmt: skip
    told = {(notice.code, notice.subject): notice for notice in found.notices}
    assert "User ann" in told["admin-access-namespace", "Namespace/monitoring"].sentence
    assert "bob" not in told["admin-access-namespace", "Namespace/monitoring"].sentence
    assert told["may-permit-admin-access", "User bob"].level == "warning"
    assert told["may-permit-admin-access", "User eve"].level == "note"


def test_a_right_that_names_its_objects_is_no_right_over_all() -> None:
    label = role("label", rule(["namespaces"], ["patch"], [""], resourceNames=["mine"]))
    assert "may-permit-admin-access" not in codes(audit(Snapshot((label, binding(label, user("u"))))))


def test_people_who_write_slices_are_a_warning_and_drivers_a_note() -> None:
    write = role("w", rule(["resourceslices"], ["create"]))
    found = audit(Snapshot((write, binding(write, user("u"), account("dra", "driver")))))
    assert {notice.subject: notice.level for notice in found.notices} == {
        "User u": "warning",
        "ServiceAccount dra/driver": "note",
    }


def test_parts_of_kubernetes_are_no_finding() -> None:
    everything = role("cluster-admin", rule(["*"], ["*"], ["*"]))
    masters = {"kind": "Group", "name": "system:masters"}
    assert audit(Snapshot((everything, binding(everything, masters)))).notices == ()


def test_claims_for_nobody_and_of_pods_long_gone() -> None:
    owner = [{"kind": "Pod", "name": "gone", "uid": "long-gone", "controller": True}]
    found = audit(
        world(
            claim("kept", held="n1/gpu-0"),
            claim("orphan", held="n2/gpu-0", ownerReferences=owner),
            claim("used", held="n2/gpu-1", users=("p",)),
            claim("new"),
            pod("p", claim_name="used", on="n2", phase="Running"),
        )
    )
    assert codes(found) == {
        "claim-for-nobody": ["ResourceClaim/ml/kept"],
        "pod-long-gone": ["ResourceClaim/ml/orphan"],
    }
    assert "gone (long-gone), which is gone, and still holds gpu.nvidia.com/n2/gpu-0" in found.notices[1].sentence


def test_admin_claims_are_listed_and_odd_ones_are_warnings() -> None:
    admin = devices()
    admin["requests"][0]["exactly"]["adminAccess"] = True
    found = audit(world(space("ml"), claim("c", admin), template("t", admin)))
    assert codes(found) == {"admin-claim": ["ResourceClaim/ml/c", "ResourceClaimTemplate/ml/t"]}
    assert all(notice.level == "warning" for notice in found.notices)
    labelled = audit(world(space("ml", admin=True), claim("c", admin, users=("p",)), pod("p", claim_name="c")))
    assert [notice.level for notice in labelled.notices if notice.code == "admin-claim"] == ["note"]


def test_two_who_hand_out_one_gpu() -> None:
    both = node("n1")
    both["status"]["allocatable"]["nvidia.com/gpu"] = "1"
    other = piece("n2", gpu("gpu-0"))
    other["spec"]["driver"] = "gpu.example.com"
    other["metadata"]["name"] = "other"
    foreign = node("n2")
    foreign["status"]["allocatable"]["volcano.sh/vgpu-number"] = "4"
    found = codes(audit(world(both, other, foreign)))
    assert found["two-allocators"] == ["Node/n1"]
    assert found["published-twice"] == ["Node/n2"]
    assert found["foreign-allocator"] == ["Node/n2"]


def test_what_could_not_be_read_is_no_orphan() -> None:
    owner = [{"kind": "Pod", "name": "gone", "uid": "x"}]
    snapshot = Snapshot((claim("c", held="n1/gpu-0", ownerReferences=owner),), unread=("pods: forbidden",))
    assert "pod-long-gone" not in codes(audit(snapshot))
