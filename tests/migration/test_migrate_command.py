"""`drakkar migrate` as people call it: files, folders, standard input, what it refuses, and the way back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from drakkar.cli.migrate import command
from drakkar.errors import DrakkarError
from drakkar.kube import yamltext

CASES = Path(__file__).parents[2] / "cases" / "migrate"
POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: p
spec:
  containers:
  - name: main
    image: x
    resources:
      limits:
        nvidia.com/{resource}: 1  # one
"""


def run(*arguments: str | Path, text: str | None = None) -> Result:
    result = CliRunner().invoke(command, [str(each) for each in arguments], input=text)
    if isinstance(result.exception, DrakkarError):
        raise result.exception
    return result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    (made / "base").mkdir(parents=True)
    (made / "base" / "pod.yaml").write_text(POD.format(resource="gpu"))
    (made / "kustomization.yaml").write_text("# all\nresources:\n- base/pod.yaml\n- quota.yaml\n")
    (made / "quota.yaml").write_text(
        "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec:\n  hard:"
        " {requests.nvidia.com/mig-1g.10gb: 7}\n"
    )
    (made / "job.json").write_text(
        json.dumps(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "j"},
                "spec": {
                    "template": {
                        "spec": {
                            "containers": [
                                {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/mig-1g.10gb": 1}}}
                            ]
                        }
                    }
                },
            },
            indent=2,
        )
    )
    (made / "README").write_text("not a manifest\n")
    return made


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def test_a_folder_there_and_back(folder: Path, tmp_path: Path) -> None:
    before, out = tree(folder), tmp_path / "out"
    assert run("apply", "-f", folder, "-o", out).exit_code == 0
    after = {name: data for name, data in tree(out).items() if not name.startswith(".")}
    assert set(after) == set(before) | {"device-classes.yaml", "job.claims.yaml"}
    assert after["README"] == before["README"]
    assert after["kustomization.yaml"].decode() == (
        "# all\nresources:\n- base/pod.yaml\n- quota.yaml\n- job.claims.yaml\n- device-classes.yaml\n"
    )
    job = json.loads(after["job.json"])
    assert job["spec"]["template"]["spec"]["containers"][0]["resources"] == {"claims": [{"name": "gpu"}]}
    assert yamltext.load(after["job.claims.yaml"])["metadata"]["name"] == "j-gpu"
    back = tmp_path / "back"
    assert run("rollback", "-f", out, "-o", back).exit_code == 0
    assert tree(back) == before


def test_applying_again_overwrites_its_own_output_only(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("apply", "-f", folder, "-o", out)
    first = tree(out)
    run("apply", "-f", folder, "-o", out)
    assert tree(out) == first
    with pytest.raises(DrakkarError, match="was not written by a migration"):
        run("apply", "-f", folder, "-o", folder)


def test_edits_after_the_migration_survive_the_way_back(folder: Path, tmp_path: Path) -> None:
    out, back = tmp_path / "out", tmp_path / "back"
    run("apply", "-f", folder, "-o", out)
    file = out / "base" / "pod.yaml"
    file.write_text(file.read_text().replace("image: x", "image: y"))
    result = run("rollback", "-f", out, "-o", back)
    assert "base/pod.yaml: edited since" in result.output
    pod = yamltext.load((back / "base" / "pod.yaml").read_bytes())
    assert pod == yamltext.load(POD.format(resource="gpu").replace("image: x", "image: y"))


def test_what_cannot_be_taken_back_is_said(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("apply", "-f", folder, "-o", out)
    file = out / "base" / "pod.yaml"
    file.write_text(POD.format(resource="gpu") + "  restartPolicy: Never\n")
    result = run("rollback", "-f", out, "-o", tmp_path / "back")
    assert (result.exit_code, "says nowhere what it was" in result.output) == (1, True)


def test_standard_input_to_standard_output() -> None:
    result = CliRunner().invoke(command, ["apply", "-f", "-"], input=POD.format(resource="gpu"))
    documents = [tree.value for tree in yamltext.trees(result.stdout)]
    assert [document["kind"] for document in documents] == ["Pod", "ResourceClaimTemplate"]
    again = CliRunner().invoke(command, ["rollback", "-f", "-"], input=result.stdout)
    assert again.stdout == POD.format(resource="gpu")


def test_refusals_end_with_one_and_can_be_accepted() -> None:
    shared = POD.format(resource="gpu.shared")
    refused = run("plan", "-f", "-", text=shared)
    assert refused.exit_code == 1
    assert "--accept shared-as-whole converts it all the same" in refused.output
    assert run("plan", "-f", "-", "--accept", "shared-as-whole", text=shared).exit_code == 0
    with pytest.raises(DrakkarError, match="no loss that can be accepted"):
        run("plan", "-f", "-", "--accept", "anything", text=shared)


def test_one_namespace_after_the_other() -> None:
    two = POD.format(resource="gpu").replace("name: p\n", "name: p\n  namespace: a\n")
    two += "---\n" + two.replace("namespace: a", "namespace: b")
    found = json.loads(run("plan", "-f", "-", "-n", "a", "--output", "json", text=two).output)
    assert [(each["namespace"], each["verdict"]) for each in found["objects"]] == [("a", "changed"), ("b", "kept")]


def test_reports_for_machines() -> None:
    case = CASES / "quota-beside-refused" / "input.yaml"
    sarif = json.loads(run("plan", "-f", case, "--output", "sarif").output)
    results = sarif["runs"][0]["results"]
    assert {each["ruleId"] for each in results} == {"quota-twice", "node-name"}
    assert all(each["level"] == "error" for each in results)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("plan", "-f", "/nowhere"), "cannot read /nowhere"),
        (("plan", "-f", "-", "--target", "1.33"), "serves no resource.k8s.io/v1"),
        (("plan", "-f", "-", "--target", "soon"), "no Kubernetes version"),
        (("verify", "-f", "-"), "nothing here says what it was"),
    ],
)
def test_bad_input_is_one_sentence(arguments: tuple[str, ...], problem: str) -> None:
    with pytest.raises(DrakkarError, match=problem):
        run(*arguments, text=POD.format(resource="gpu"))


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("nvidia.com/gpu: 1", "nvidia.com/gpu: []", "amount-unreadable"),
        ("nvidia.com/gpu: 1", "nvidia.com/gpu: many", "amount-unreadable"),
        ("nvidia.com/gpu: 1", "nvidia.com/gpu: 500m", "amount-unreadable"),
        ("nvidia.com/gpu: 1", "nvidia.com/pgpu: 1", "resource-unknown"),
        ("resources:\n", "resources:\n      claims: 7\n", "claims-unreadable"),
    ],
)
def test_shapes_that_no_api_would_take_are_refused(old: str, new: str, code: str) -> None:
    result = run("plan", "-f", "-", text=POD.format(resource="gpu").replace(old, new))
    assert (result.exit_code, f"    {code} at line" in result.output) == (1, True)


def test_templates_of_helm_have_to_be_rendered() -> None:
    with pytest.raises(DrakkarError, match="cannot read stdin") as caught:
        run("plan", "-f", "-", text="a: {{ .Values.gpu }}\nb: {{- if x }}\n")
    assert "helm template" in caught.value.next_step


def test_verify_of_a_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("apply", "-f", CASES / "pod" / "input.yaml", "-o", out)
    found = json.loads(run("verify", "-f", out, "--output", "json").output)
    assert found["ok"] is True
    assert [(check["what"], check["ok"]) for check in found["checks"]] == [("devices", True)]


def test_verify_tells_a_form_that_is_not_the_same(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("apply", "-f", CASES / "pod" / "input.yaml", "-o", out)
    file = out / "input.yaml"
    file.write_text(file.read_text().replace("count: 1", "count: 2"))
    result = run("verify", "-f", out)
    assert result.exit_code == 1
    assert "DIFFERS: devices of default/Pod/shell" in result.output
