"""A selector taken apart: each clause with its text, its place, what it found and what it wanted."""

import pytest

from drakkar.cel import ClauseResult, DeviceValue, device_environment

DEVICE = DeviceValue.from_json(
    "gpu.nvidia.com",
    {
        "attributes": {
            "productName": {"string": "NVIDIA A100-SXM4-40GB"},
            "type": {"string": "gpu"},
            "index": {"int": 3},
            "healthy": {"bool": False},
            "driverVersion": {"version": "570.86.15"},
            "names": {"strings": ["a", "b"]},
        },
        "capacity": {"memory": {"value": "40Gi"}},
    },
)
A = 'device.attributes["gpu.nvidia.com"]'


def clauses(text: str) -> tuple[ClauseResult, ...]:
    return device_environment().compile(text).evaluate_clauses({"device": DEVICE})


def only(text: str) -> ClauseResult:
    (result,) = clauses(text)
    return result


def test_every_operand_of_the_conjunction_is_a_clause_with_its_text_and_place() -> None:
    text = f'{A}.type == "gpu" &&\n  ({A}.index > 2 && !{A}.healthy) &&  {A}.missing == 1'
    results = clauses(text)
    assert [(one.clause.text, one.clause.line, one.clause.column) for one in results] == [
        (f'{A}.type == "gpu"', 1, 1),
        (f"{A}.index > 2", 2, 4),
        (f"!{A}.healthy", 2, len(f"  ({A}.index > 2 && ") + 1),
        (f"{A}.missing == 1", 2, len(f"  ({A}.index > 2 && !{A}.healthy) &&  ") + 1),
    ]
    assert [one.value for one in results] == [True, True, True, None]
    assert results[3].error == "no such key: missing"


def test_clauses_behind_a_false_one_are_evaluated_too() -> None:
    assert [one.value for one in clauses("false && true && 1 / 0 == 1")] == [False, True, None]


COMPARISONS = [
    ("device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) > 0", False, "40Gi", "> 40Gi"),
    ("device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('80Gi')) >= 0", False, "40Gi", ">= 80Gi"),
    ("0 <= device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('80Gi'))", False, "40Gi", ">= 80Gi"),
    ("device.capacity['gpu.nvidia.com'].memory.isGreaterThan(quantity('39Gi'))", True, "40Gi", "> 39Gi"),
    ("device.capacity['gpu.nvidia.com'].memory == quantity('41Gi')", False, "40Gi", "== 41Gi"),
    (f'{A}.type == "mig"', False, '"gpu"', '== "mig"'),
    (f'"mig" == {A}.type', False, '"gpu"', '== "mig"'),
    (f'{A}.type != "gpu"', False, '"gpu"', '!= "gpu"'),
    (f"{A}.index < 3", False, "3", "< 3"),
    (f"!({A}.index == 3)", False, "3", "!= 3"),
    (f"3 < {A}.index", False, "3", "> 3"),
    (f'{A}.productName.matches("H100")', False, '"NVIDIA A100-SXM4-40GB"', 'matches "H100"'),
    (f'!{A}.productName.startsWith("NVIDIA")', False, '"NVIDIA A100-SXM4-40GB"', 'not starts with "NVIDIA"'),
    (f'{A}.type in ["mig", "vgpu"]', False, '"gpu"', 'in ["mig", "vgpu"]'),
    (f"{A}.driverVersion.isGreaterThan(semver('580.0.0'))", False, "570.86.15", "> 580.0.0"),
    (f"{A}.driverVersion.compareTo(semver('580.0.0')) >= 0", False, "570.86.15", ">= 580.0.0"),
    (f"{A}.healthy", False, "false", "is true"),
    (f"has({A}.profile)", False, "false", "exists"),
    (f'{A}.?profile.orValue("none") == "1g.5gb"', False, '"none"', '== "1g.5gb"'),
    (f"{A}.names.size() == 3", False, "2", "== 3"),
    (f'{A}.missing == "x"', None, "absent", '== "x"'),
]


@pytest.mark.parametrize(("text", "value", "actual", "wanted"), COMPARISONS)
def test_comparisons_say_what_they_found_and_wanted(text: str, value: bool | None, actual: str, wanted: str) -> None:
    result = only(text)
    assert (result.value, result.actual, result.wanted) == (value, actual, wanted)


def test_the_subject_is_named() -> None:
    assert only(f"{A}.index > 3").clause.subject == f"{A}.index"
    memory = "device.capacity['gpu.nvidia.com'].memory"
    assert only(f"{memory}.compareTo(quantity('1')) > 0").clause.subject == memory.replace("'", '"')


def test_a_clause_that_is_no_comparison_has_a_value_only() -> None:
    result = only(f"{A}.index > 9 || {A}.healthy")
    assert (result.value, result.actual, result.wanted, result.error) == (False, None, None, "")


def test_the_conjunction_of_the_clauses_is_the_selector() -> None:
    text = f'{A}.type == "gpu" && {A}.index >= 3 && device.driver == "gpu.nvidia.com"'
    program = device_environment().compile(text)
    assert program.evaluate({"device": DEVICE}).value is all(
        result.value for result in program.evaluate_clauses({"device": DEVICE})
    )
