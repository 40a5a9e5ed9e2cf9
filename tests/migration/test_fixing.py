"""`drakkar lint --fix`: right forms, once and for all, and nothing else."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from drakkar.cli.lint import command
from drakkar.kube import yamltext
from drakkar.migration.context import Context
from drakkar.migration.fixing import fix
from tests.migration.worlds import pod

CASES = Path(__file__).parents[2] / "cases" / "lint"
NAMES = sorted(path.name for path in CASES.iterdir() if (path / "input").is_dir())
HERE = [Context("1.36")]


def fixed(text: str, *, name: str = "m.yaml", minors: tuple[int, ...] = (36,)) -> str:
    contexts = [Context(f"1.{minor}") for minor in minors]
    return fix({name: text.encode()}, contexts).files[name].decode()


def context(name: str) -> Context:
    file = CASES / name / "context.yaml"
    told = yamltext.load(file.read_bytes()) if file.exists() else {}
    standard = Context()
    return Context(
        str(told.get("kubernetes", standard.kubernetes)),
        str(told.get("driver", standard.driver)),
        str(told.get("dcgmExporter", standard.dcgm_exporter)),
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_case(name: str) -> None:
    files = {str(path): path.read_bytes() for path in sorted((CASES / name / "input").iterdir())}
    once = fix(files, [context(name)])
    assert fix(once.files, [context(name)]).files == once.files
    if name.startswith("clean-"):
        assert once.files == files
    for file, data in files.items():
        lost = comments(data.decode()) - comments(once.files[file].decode())
        assert not lost
        if data != once.files[file]:
            assert once.findings


def comments(text: str) -> Counter[str]:
    return Counter(match[1].strip() for match in re.finditer(r"(?:^|\s)(#.*)$", text, re.MULTILINE))


CLAIM = """\
apiVersion: resource.k8s.io/{version}
kind: ResourceClaim
metadata: {{name: c}}
spec:
  devices:
    requests:
    - name: gpu  # the card
{body}
"""


def test_fields_move_under_exactly_with_their_comments() -> None:
    text = CLAIM.format(version="v1", body="      deviceClassName: gpu.nvidia.com  # any\n      count: 2")
    assert fixed(text) == CLAIM.format(
        version="v1",
        body="      # any\n      exactly:\n        deviceClassName: gpu.nvidia.com\n        count: 2",
    ) or yamltext.load(fixed(text))["spec"]["devices"]["requests"] == [
        {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}
    ]
    assert "# any" in fixed(text) and "# the card" in fixed(text)


def test_an_old_version_becomes_v1_with_its_shape() -> None:
    text = CLAIM.format(version="v1beta1", body="      deviceClassName: gpu.nvidia.com")
    made = yamltext.load(fixed(text))
    assert made["apiVersion"] == "resource.k8s.io/v1"
    assert made["spec"]["devices"]["requests"] == [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]


def test_what_holds_for_some_versions_only_is_left_alone() -> None:
    text = CLAIM.format(version="v1beta1", body="      deviceClassName: gpu.nvidia.com")
    assert fixed(text, minors=(33, 36)) == text


def test_modes_are_put_right_where_only_one_can_be_meant() -> None:
    body = "      exactly: {{deviceClassName: gpu.nvidia.com, allocationMode: {mode}}}"
    assert "allocationMode: All" in fixed(CLAIM.format(version="v1", body=body.format(mode="all")))
    assert "allocationMode: ExactCount" in fixed(CLAIM.format(version="v1", body=body.format(mode="exactCount")))
    some = CLAIM.format(version="v1", body=body.format(mode="Some"))
    assert fixed(some) == some


def test_suppressed_findings_stay() -> None:
    text = pod("runtimeClassName: nvidia  # drakkar: ignore[runtimeclass-beside-claim] the image needs it")
    assert fixed(text) == text
    assert "runtimeClassName" not in fixed(pod("runtimeClassName: nvidia"))


def test_what_names_a_device_by_hand_is_left_to_people() -> None:
    text = pod("nodeName: gpu-3")
    assert fixed(text) == text


def test_a_gate_goes_from_a_list_of_gates() -> None:
    text = (
        "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\napiServer:\n  extraArgs:\n"
        "  - name: feature-gates\n    value: DynamicResourceAllocation=true,Other=true\n"
    )
    assert fixed(text) == text.replace("DynamicResourceAllocation=true,", "")


def test_the_command_writes_files_or_shows_the_difference(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(pod("runtimeClassName: nvidia"))
    before = file.read_text()
    shown = CliRunner().invoke(command, ["--diff", str(file)])
    assert "-  runtimeClassName: nvidia" in shown.output
    assert file.read_text() == before
    done = CliRunner().invoke(command, ["--fix", str(file)])
    assert "1 fix" in done.output
    assert file.read_text() == before.replace("  runtimeClassName: nvidia\n", "")
    piped = CliRunner().invoke(command, ["--fix", "-"], input=before)
    assert file.read_text() in piped.output
