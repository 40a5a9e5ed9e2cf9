"""Files become documents with places; whatever cannot be one ends in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from drakkar.errors import DrakkarError
from drakkar.migration.documents import Document, read_bytes, read_folder
from drakkar.migration.findings import render_path
from tests.migration.worlds import found, sources


def document(text: str, name: str = "m.yaml") -> Document:
    [only] = sources({name: text})
    assert isinstance(only, Document)
    return only


def test_every_field_knows_its_place() -> None:
    made = document("kind: A\nspec:\n  list:\n  - x\n  - name: b\n")
    assert made.place(("spec",)) == (2, 1)
    assert made.place(("spec", "list", 1, "name")) == (5, 5)
    assert made.place(("spec", "list", 7, "gone")) == (3, 3)


def test_paths_quote_what_has_dots() -> None:
    assert render_path(("spec", "hard", "requests.nvidia.com/gpu", 0)) == "spec.hard['requests.nvidia.com/gpu'][0]"
    assert render_path(()) == "$"


def test_numbers_and_booleans_are_those_that_kubectl_reads() -> None:
    assert document("a: no\nb: 1:20\nc: 2026-01-01\nd: 0o17\ne: true\nf: 1e3\ng: ~\nh:\n").value == {
        "a": False, "b": "1:20", "c": "2026-01-01", "d": 15, "e": True, "f": 1000.0, "g": None, "h": None,
    }  # fmt: skip


def test_anchors_and_merges() -> None:
    assert document("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}\n").value["d"] == {"b": 1, "c": 3}


def test_names_of_documents() -> None:
    kinds = [each.reference for each in sources({"kubelet.yaml": "kind: K\n---\nkind: L\nmetadata: {name: l}\n"})]
    assert kinds == ["K/kubelet", "L/l"]
    assert document("a: 1", "dra.values.yaml").reference == "Values/dra"
    assert [each.reference for each in sources({"c.csv": "x"})] == ["CSV/c.csv"]


def test_items_of_a_list_are_documents() -> None:
    [item] = sources({"m.yaml": "kind: List\nitems:\n- kind: Pod\n  metadata: {name: p}\n"})
    assert (item.reference, item.place(("metadata",))) == ("Pod/p", (4, 3))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"a: [1", "line 2"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b"a: &x [*x]", "exceeded max depth"),
        (b"[" * 3000, "cannot read"),
        (b"a: \t- {{ .Values.x }}", "line 1"),
        ("a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40)), "excessive"),
    ],
)
def test_damaged_files_end_in_one_sentence(data: bytes | str, problem: str) -> None:
    with pytest.raises(DrakkarError, match=problem):
        read_bytes(data if isinstance(data, bytes) else data.encode(), "m.yaml")


def test_documents_that_are_no_objects_are_left_out() -> None:
    assert sources({"patch.yaml": "- op: add\n---\n---\nnull\n"}) == []


def test_a_folder_is_read_by_name_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b.yaml", "a/c.yml", ".git/d.yaml", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("kind: X\n")
    assert [Path(each.file).name for each in read_folder(tmp_path)] == ["c.yml", "b.yaml"]
    with pytest.raises(DrakkarError, match="does not exist"):
        read_folder(tmp_path / "nowhere")


POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  resourceClaims: [{name: gpu, resourceClaimName: c}]
  %s
  nodeName: n1 %s
  containers: [{name: m, image: x, resources: {claims: [{name: gpu}]}}]
"""


@pytest.mark.parametrize(
    ("above", "behind", "left"),
    [
        ("", "", 1),
        ("", "# drakkar: ignore[node-name-with-claim] the claim is allocated before", 0),
        ("# drakkar: ignore[x, node-name-with-claim] the claim is allocated before", "", 0),
        ("", "# drakkar: ignore[node-name-with-claim]", 1),
        ("", "# drakkar: ignore[claim-unused] another one", 1),
        ("hostname: h # drakkar: ignore[node-name-with-claim] that is about its own line", "", 1),
    ],
)
def test_comments_with_a_reason_switch_a_finding_off(above: str, behind: str, left: int) -> None:
    assert len(found(POD % (above, behind))) == left
