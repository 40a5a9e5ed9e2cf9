"""The driver that docs/rooms/drivers.md shows is short, whole and works."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from small_api import FakeApi

from drakkar.drivers.kit import NodeDriver
from drakkar.kube.client import Client
from drakkar.kube.clock import FakeClock
from drakkar.preparation.values import ClaimRef, ClaimUID

PAGE = Path(__file__).parents[2] / "docs" / "rooms" / "drivers.md"
CLAIM = "/apis/resource.k8s.io/v1/namespaces/team-a/resourceclaims/c"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
REF = ClaimRef(ClaimUID("u-1"), "c", "team-a")


def example() -> tuple[str, dict[str, Any]]:
    (source,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(source, str(PAGE), "exec"), names)
    return source, names


def driver_of(folder: Path, api: FakeApi) -> NodeDriver:
    _, names = example()
    (folder / "lamps").mkdir(exist_ok=True)
    api.put("/api/v1/nodes/n1", {"kind": "Node"})
    return NodeDriver(
        names["Lamps"]("n1", folder / "lamps"),
        node_name="n1",
        client=Client(api),
        plugins_dir=folder / "p",
        registry_dir=folder / "r",
        cdi_dir=folder / "cdi",
        state_dir=folder / "s",
        clock=FakeClock(),
    )


def claim(api: FakeApi, lamp: str, parameters: dict[str, Any] | None = None) -> None:
    result = {"request": "lamp", "driver": "lamps.example.com", "pool": "n1", "device": lamp}
    opaque = {"driver": "lamps.example.com", "parameters": parameters}
    config = [{"source": "FromClaim", "requests": ["lamp"], "opaque": opaque}] if parameters else []
    status = {"allocation": {"devices": {"results": [result], "config": config}}}
    api.put(CLAIM, {"metadata": {"uid": "u-1"}, "status": status})


def test_it_is_a_whole_driver_in_less_than_eighty_lines() -> None:
    source, _ = example()
    assert len(source.splitlines()) < 80
    assert "..." not in source


def test_lamps_are_published_prepared_injected_and_put_back(tmp_path: Path) -> None:
    async def main() -> None:
        api = FakeApi()
        driver = driver_of(tmp_path, api)
        await driver.start()
        try:
            assert api.under(SLICES) == []
            (tmp_path / "lamps" / "lamp-a").write_text("red\n")
            driver.refresh()
            await driver.publisher.settled()
            (device,) = api.under(SLICES)[0]["spec"]["devices"]
            assert device == {
                "name": "lamp-a",
                "attributes": {"colour": {"string": "red"}},
                "capacity": {"watts": {"value": "40"}},
            }
            claim(api, "lamp-a", {"brightness": "half"})
            (prepared,) = (await driver.prepare([REF]))[REF.uid].devices
            assert prepared.cdi_device_ids == ("k8s.lamps.example.com/claim=u-1-lamp-a",)
            (path,) = (tmp_path / "cdi").iterdir()
            (injected,) = json.loads(path.read_text())["devices"]
            assert injected["containerEdits"]["env"] == ["LAMP=lamp-a", "BRIGHTNESS=half"]
            assert (await driver.unprepare([REF]))[REF.uid] == ""
            assert list((tmp_path / "cdi").iterdir()) == []
        finally:
            await driver.stop()

    asyncio.run(main())


@pytest.mark.parametrize("lamp", ["lamp-z"])
def test_a_lamp_that_is_gone_is_refused_in_a_sentence(tmp_path: Path, lamp: str) -> None:
    async def main() -> None:
        api = FakeApi()
        driver = driver_of(tmp_path, api)
        await driver.start()
        try:
            claim(api, lamp)
            assert (await driver.prepare([REF]))[REF.uid].error == "lamp lamp-z is gone"
            assert not driver.claims
        finally:
            await driver.stop()

    asyncio.run(main())
