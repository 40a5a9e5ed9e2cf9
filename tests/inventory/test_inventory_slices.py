"""Pools split into slices at the limits of the API; what no slice can hold is refused."""

import pytest

from drakkar.errors import DrakkarError
from drakkar.inventory import devices as api
from drakkar.inventory.devices import Consumption, CounterSet, PublishedDevice, Taint
from drakkar.inventory.slices import Pool, content_hash, names_in, slice_contents, slice_spec


def pool(*groups: tuple[PublishedDevice, ...], counters: tuple[CounterSet, ...] = ()) -> Pool:
    return Pool("lamps.example.com", "node-a", "node-a", groups, counters)


def lamps(count: int, **fields: object) -> tuple[PublishedDevice, ...]:
    return tuple(PublishedDevice(f"lamp-{number}", **fields) for number in range(count))  # type: ignore[arg-type]


def test_a_pool_without_devices_is_one_empty_slice() -> None:
    assert slice_contents(pool(())) == [{"devices": []}]
    assert "devices" not in slice_spec(pool(()), {"devices": []}, generation=1, count=1)


def test_slices_are_split_at_the_limits_of_the_api() -> None:
    assert [len(part["devices"]) for part in slice_contents(pool(lamps(200)))] == [128, 72]
    tainted = lamps(200, taints=(Taint("example.com/broken", "NoSchedule"),))
    assert [len(part["devices"]) for part in slice_contents(pool(tainted))] == [64, 64, 64, 8]
    listed = lamps(65, attributes={"sizes": {"ints": [1, 2]}})
    assert [len(part["devices"]) for part in slice_contents(pool(listed))] == [64, 1]


def test_counter_sets_come_first_and_eight_to_a_slice() -> None:
    sets = tuple(CounterSet(f"set-{number}", {"memory": "1Gi"}) for number in range(9))
    device = PublishedDevice("lamp", consumes=(Consumption("set-0", {"memory": "1Gi"}),))
    contents = slice_contents(pool((device,), counters=sets))
    assert [names_in(content)[0] for content in contents] == ["counters", "counters", "devices"]
    assert contents[2]["devices"][0]["consumesCounters"] == [
        {"counterSet": "set-0", "counters": {"memory": {"value": "1Gi"}}}
    ]


def test_quantities_are_written_as_the_api_gives_them_back() -> None:
    """Else what is published would differ from what shall be each time they are compared, and be written again."""
    valid = {"min": "1024Ki", "max": "2048Mi", "step": "1Mi"}
    policy = {"default": "1000", "validRange": valid, "validValues": ["1000", "0.5"]}
    counters = {"memory": "4096Mi", "slots": "12000"}
    device = PublishedDevice(
        "lamp",
        capacity={"slots": api.capacity("1000"), "memory": api.capacity("2048Mi", policy)},
        consumes=(Consumption("set", counters),),
    )
    first, second = slice_contents(pool((device,), counters=(CounterSet("set", counters),)))
    stored = {"memory": {"value": "4Gi"}, "slots": {"value": "12k"}}
    assert first["sharedCounters"][0]["counters"] == stored
    assert second["devices"][0]["consumesCounters"][0]["counters"] == stored
    assert second["devices"][0]["capacity"] == {
        "slots": {"value": "1k"},
        "memory": {
            "value": "2Gi",
            "requestPolicy": {
                "default": "1k",
                "validRange": {"min": "1Mi", "max": "2Gi", "step": "1Mi"},
                "validValues": ["1k", "500m"],
            },
        },
    }


@pytest.mark.parametrize(
    ("device", "problem"),
    [
        (PublishedDevice("a", {f"x{n}": api.integer(n) for n in range(33)}), "more than 32 attributes"),
        (PublishedDevice("a", taints=tuple(Taint(f"k{n}", "None") for n in range(17))), "more than 16 taints"),
        (PublishedDevice("lamp-0"), "second device has this name"),
    ],
)
def test_what_no_slice_can_hold_is_refused_before_publishing(device: PublishedDevice, problem: str) -> None:
    with pytest.raises(DrakkarError, match=problem) as caught:
        slice_contents(pool((*lamps(1), device)))
    assert caught.value.reason == "InvalidDevice"


def test_the_hash_changes_with_hardware_and_not_with_the_time_of_a_taint() -> None:
    plain = slice_contents(pool(lamps(2)))
    early = [
        {"devices": [{"name": "a", "taints": [{"key": "k", "effect": "None", "timeAdded": "2026-01-01T00:00:00Z"}]}]}
    ]
    late = [
        {"devices": [{"name": "a", "taints": [{"key": "k", "effect": "None", "timeAdded": "2026-02-02T00:00:00Z"}]}]}
    ]
    assert content_hash(plain) == content_hash(slice_contents(pool(lamps(2))))
    assert content_hash(plain) != content_hash(slice_contents(pool(lamps(3))))
    assert content_hash(early) == content_hash(late)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0"),
        (1, "1"),
        (1023, "1023"),
        (1 << 20, "1Mi"),
        (40960 << 20, "40Gi"),
        (81559 << 20, "81559Mi"),
        (1 << 40, "1Ti"),
    ],
)
def test_quantities_are_canonical(amount: int, text: str) -> None:
    from drakkar.kube.quantity import Quantity

    assert api.binary_quantity(amount) == text
    assert Quantity.parse(text).canonical() == text


@pytest.mark.parametrize(
    ("text", "version"),
    [("580.95.05", "580.95.5"), ("595.80", "595.80.0"), ("13.0", "13.0.0"), ("9", "9.0.0")],
)
def test_versions_are_semantic(text: str, version: str) -> None:
    assert api.semantic_version(text) == version


def test_long_strings_are_cut_at_a_character() -> None:
    assert api.string("é" * 40) == {"string": "é" * 32}
    assert api.string("x" * 70) == {"string": "x" * 64}
