"""MIG: places, ids, engines, capability minors and device names as NVIDIA's driver gives them."""

import pytest

from drakkar.vendors.nvidia import mig, models
from drakkar.vendors.nvidia.gpu import Gpu
from drakkar.vendors.nvidia.published import PublishOptions, published_pool


def create(board: mig.MigBoard, *wanted: str) -> list[int | None]:
    """Ids that the driver hands out when asked for profiles one after the other, None for Insufficient Resources."""
    existing: list[tuple[mig.MigProfile, int]] = []
    ids: list[int | None] = []
    for name in wanted:
        profile = next(one for one in board.profiles if one.name.split(".")[0] == name and "+" not in one.name)
        start = board.automatic_start(profile, existing)
        ids.append(None if start is None else board.instance_id(profile, start))
        if start is not None:
            existing.append((profile, start))
    return ids


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (["1g"] * 8, [13, 11, 12, 7, 8, 9, 10, None]),
        (["3g", "3g", "1g"], [2, 1, None]),
        (["3g", "1g", "2g", "1g"], [2, 7, 4, 8]),
        (["2g", "1g", "1g", "1g", "1g", "1g"], [5, 13, 7, 8, 9, 10]),
        (["3g", "2g", "1g", "1g"], [2, 3, 9, 10]),
        (["4g", "3g"], [1, 2]),
        (["2g", "2g", "2g", "1g"], [5, 3, 4, 13]),
        (["1g", "1g", "2g", "3g"], [13, 11, 3, None]),
        (["7g", "1g"], [0, None]),
    ],
)
def test_instances_get_the_places_and_ids_of_the_driver(wanted: list[str], ids: list[int | None]) -> None:
    assert create(mig.board("h100-80gb"), *wanted) == ids


@pytest.mark.parametrize("name", ["a100-40gb", "a30", "h100-80gb", "h200-141gb", "b200", "gb300", "rtx-pro-6000"])
def test_each_profile_fits_as_often_as_its_table_says(name: str) -> None:
    board = mig.board(name)
    for profile in board.profiles:
        existing: list[tuple[mig.MigProfile, int]] = []
        while (start := board.automatic_start(profile, existing)) is not None:
            existing.append((profile, start))
        assert len(existing) == profile.max, profile.name


def test_engines_that_exist_once_are_shared_out() -> None:
    board = mig.board("h100-80gb")
    me, plain = board.profile("1g.10gb+me"), board.profile("1g.10gb")
    assert not board.fits(me, 1, [(me, 0)])
    assert board.fits(plain, 1, [(me, 0)])
    pro = mig.board("rtx-pro-6000")
    assert not pro.fits(pro.profile("1g.24gb"), 3, [(pro.profile("1g.24gb+me.all"), 0)])
    assert pro.fits(pro.profile("1g.24gb-me"), 3, [(pro.profile("1g.24gb+me.all"), 0)])


def test_capability_minors_follow_the_drivers_table() -> None:
    assert mig.gpu_instance_capability(0, 0) == 3
    assert mig.compute_instance_capability(0, 0, 0) == 4
    assert mig.gpu_instance_capability(0, 1) == 12
    assert mig.gpu_instance_capability(1, 0) == 138
    lines = mig.capability_minors().splitlines()
    assert lines[:4] == ["config 1", "monitor 2", "gpu0/gi0/access 3", "gpu0/gi0/ci0/access 4"]
    assert (len(lines), lines[-1]) == (4322, "gpu31/gi14/ci7/access 4322")


@pytest.mark.parametrize(
    ("profile", "ident", "start", "name"),
    [
        ("3g.40gb", 9, 4, "gpu-1-mig-3g40gb-9-4"),
        ("1g.24gb+me", 21, 0, "gpu-1-mig-1g24gb-me-21-0"),
        ("1g.24gb-me", 67, 3, "gpu-1-mig-1g24gb-me-67-3"),
        ("1g.24gb+me.all", 65, 0, "gpu-1-mig-1g24gb-meall-65-0"),
    ],
)
def test_device_names_are_those_of_nvidias_driver(profile: str, ident: int, start: int, name: str) -> None:
    assert mig.device_name(1, profile, ident, start) == name


def gpu(model: str, *, mig_enabled: bool = False) -> Gpu:
    product = models.gpu_model(model)
    return Gpu(
        uuid="GPU-0",
        model=product.productName,
        bus_id="0000:1b:00.0",
        pcie_root="pci0000:15",
        numa_node=0,
        nodes=(),
        index=0,
        minor=0,
        product=product,
        driver_version="580.95.05",
        cuda_version="13.0",
        serial="1",
        vbios="",
        module_id=1,
        mig_enabled=mig_enabled,
    )


@pytest.mark.parametrize(
    ("model", "count"), [("h100-sxm5-80gb", 26), ("b200", 26), ("rtx-pro-6000-blackwell-server", 31), ("l40s", 1)]
)
def test_dynamic_mig_publishes_every_profile_at_every_place(model: str, count: int) -> None:
    pool = published_pool([gpu(model)], "n", PublishOptions(dynamic_mig=True))
    assert len(pool.devices) == count


def test_on_ampere_the_mode_decides_between_gpu_and_partitions() -> None:
    off = published_pool([gpu("a30")], "n", PublishOptions(dynamic_mig=True))
    on = published_pool([gpu("a30", mig_enabled=True)], "n", PublishOptions(dynamic_mig=True))
    assert [device.name for device in off.devices] == ["gpu-0"] and off.counter_sets == ()
    assert len(on.devices) == 13 and "gpu-0" not in [device.name for device in on.devices]


def test_counters_are_the_profile_maxima_and_partitions_consume_their_slices() -> None:
    pool = published_pool([gpu("h100-sxm5-80gb")], "n", PublishOptions(dynamic_mig=True))
    (counters,) = pool.counter_sets
    assert counters.name == "gpu-0-counter-set"
    assert counters.counters == {
        "memory": "81152Mi", "multiprocessors": "132", "copy-engines": "8", "decoders": "7", "encoders": "0",
        "jpeg-engines": "7", "ofa-engines": "1", **{f"memory-slice-{number}": "1" for number in range(8)},
    }  # fmt: skip
    devices = {device.name: device for device in pool.devices}
    part = devices["gpu-0-mig-1g10gb-19-2"].to_json()
    assert part["consumesCounters"][0]["counters"] == {
        "memory": {"value": "9984Mi"}, "multiprocessors": {"value": "16"}, "copy-engines": {"value": "1"},
        "decoders": {"value": "1"}, "encoders": {"value": "0"}, "jpeg-engines": {"value": "1"},
        "ofa-engines": {"value": "0"}, "memory-slice-2": {"value": "1"},
    }  # fmt: skip
    assert "uuid" not in part["attributes"]
    assert devices["gpu-0"].to_json()["consumesCounters"][0]["counters"].keys() == counters.counters.keys()
    assert devices["gpu-0"].capacity["memory"] == {"value": "81152Mi"}
