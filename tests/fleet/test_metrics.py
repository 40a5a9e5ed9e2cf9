"""The exposition format to the letter, and the numbers in it."""

from __future__ import annotations

import pytest

from drakkar.errors import DrakkarError
from drakkar.fleet.devices import Fleet
from drakkar.fleet.metrics import families
from drakkar.kube.exposition import Family, render
from tests.diagnosis.world import claim, gpu, piece, pod, uid, world


def _lines(*objects: object, causes: dict[str, str] | None = None) -> list[str]:
    return render(families(Fleet(world(*objects)), causes)).splitlines()  # type: ignore[arg-type]


def test_everything_that_needs_escaping_is_escaped() -> None:
    family = Family("a_metric", 'first\nsecond \\ "quoted"')
    family.add(1, label='a "quoted" back\\slash\nand line')
    assert render([family]) == (
        '# HELP a_metric first\\nsecond \\\\ "quoted"\n'
        "# TYPE a_metric gauge\n"
        'a_metric{label="a \\"quoted\\" back\\\\slash\\nand line"} 1\n'
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (3.0, "3"), (0.25, "0.25"), (-1.5, "-1.5"), (1e15, "1000000000000000.0"), (1e300, "1e+300"),
        (float("nan"), "NaN"), (float("inf"), "+Inf"), (float("-inf"), "-Inf"),
    ],
)  # fmt: skip
def test_numbers_read_back_as_they_were(value: float, text: str) -> None:
    family = Family("m", "")
    family.add(value)
    assert render([family]).splitlines()[-1] == f"m {text}"


@pytest.mark.parametrize(
    ("name", "label"), [("1m", "a"), ("a-b", "a"), ("m", "1a"), ("m", "__a"), ("m", "a:b"), ("", "a")]
)
def test_names_the_format_does_not_have_are_refused(name: str, label: str) -> None:
    family = Family(name, "")
    family.add(1, **{label: "x"})
    with pytest.raises(DrakkarError, match="is no name in the exposition format"):
        render([family])


def test_the_same_series_twice_is_refused() -> None:
    family = Family("m", "")
    family.add(1, a="x")
    family.add(2, a="x")
    with pytest.raises(DrakkarError, match="two samples"):
        render([family])


def test_devices_claims_and_fragmentation() -> None:
    lines = _lines(
        piece("n1", gpu("gpu-0"), gpu("gpu-1"), gpu("gpu-2", taints=[{"key": "hot", "effect": "NoSchedule"}])),
        claim("a", held="n1/gpu-0", users=("p",)),
        claim("b"),
        claim("c", held="n2/gpu-0"),
    )
    labels = 'driver="gpu.nvidia.com",node="n1",product="NVIDIA A100",type="gpu"'
    for state, count in {"held": 1, "tainted": 1, "stranded": 0, "free": 1}.items():
        assert f'drakkar_devices{{{labels},state="{state}"}} {count}' in lines
    assert 'drakkar_class_devices{deviceclass="gpu.nvidia.com",state="held"} 2' in lines
    for state, count in {"pending": 1, "allocated": 1, "reserved": 1, "deleting": 0}.items():
        assert f'drakkar_claims{{namespace="ml",state="{state}"}} {count}' in lines
    product = 'driver="gpu.nvidia.com",product="NVIDIA A100",type="gpu"'
    assert f'drakkar_fitting_requests{{{product},size="1"}} 1' in lines
    assert f'drakkar_fragmentation_ratio{{{product},size="2"}} 1' in lines


def test_pending_pods_have_the_cause_a_diagnosis_found_or_the_reason_they_state() -> None:
    waiting = pod("p", claim_name="a")
    waiting["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    others = (pod("bound", claim_name="b", on="n1"), pod("no-devices"), pod("done", claim_name="a", phase="Succeeded"))
    assert 'drakkar_pending_pods{namespace="ml",cause="Unschedulable"} 1' in _lines(waiting, *others)
    causes = {uid("Pod", "p"): "devices-in-use", uid("Pod", "bound"): "driver-slow"}
    lines = _lines(waiting, *others, causes=causes)
    pending = [line for line in lines if line.startswith("drakkar_pending_pods{")]
    assert pending == [
        'drakkar_pending_pods{namespace="ml",cause="devices-in-use"} 1',
        'drakkar_pending_pods{namespace="ml",cause="driver-slow"} 1',
    ]
