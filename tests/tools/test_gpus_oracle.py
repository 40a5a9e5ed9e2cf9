"""The oracle about GPUs where NVML refuses: an answer that says what was asked, and the next machine has its own."""

from typing import Any

import pytest

from tests.conftest import missing
from tools.fuzz_gpus import Room
from tools.oracles import Oracle, OracleError


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("nvmlDeviceGetMinorNumber", "minor: "),
        ("nvmlDeviceGetMemoryInfo", "memory: "),
        ("nvmlDeviceGetVirtualizationMode", "virtualization mode: "),
        ("nvmlSystemGetDriverVersion", "driver version: "),
        ("nvmlSystemGetCudaDriverVersion", "CUDA version: "),
        ("nvmlDeviceGetMaxMigDeviceCount", "MIG devices: "),
        ("nvmlGpuInstanceGetInfo", "GPU instance 0: "),
    ],
)
def test_a_refusal_of_nvmls_is_an_error_of_that_machine_alone(function: str, expected: str) -> None:
    room = Room()
    case: dict[str, Any] = next(
        case for case, _ in map(room.random_case, range(50)) if case["dynamicMIG"] and "\ninstance\t" in case["machine"]
    )
    refused = case | {"machine": f"{case['machine']}answer\t{function}\t2\n"}
    try:
        oracle = Oracle("gpus", *room.ARGUMENTS)
    except OracleError as error:
        missing("compiler", str(error))
    with oracle:
        assert expected in oracle.ask(refused)["error"]
        assert oracle.ask(case)["devices"]
