"""Registration, refusal, loss and return of plugins."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from pathlib import Path

import pytest

from drakkar.cluster.kubelet.plugins import PluginError, PluginRegistry
from drakkar.kube.clock import FakeClock
from tests.cluster.kubelet.world import DRIVER, Driver, until


class Registry:
    """A registry on a fake clock whose wiped drivers are written down."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.wiped: list[str] = []
        self.changes = 0
        self.plugins = PluginRegistry(
            folder / "plugins_registry", clock=self.clock, wipe=self._wipe, changed=self._changed
        )

    async def _wipe(self, driver: str) -> None:
        self.wiped.append(driver)

    def _changed(self) -> None:
        self.changes += 1


def test_slices_go_thirty_seconds_after_the_last_instance() -> None:
    async def body(folder: Path) -> None:
        registry = Registry(folder)
        registry.plugins.start()
        driver = Driver(folder, folder / "cdi")
        await driver.server.start()
        await until(lambda: registry.plugins.drivers() == [DRIVER])
        await until(driver.server.registered.is_set)
        await driver.server.stop()
        await until(lambda: registry.plugins.drivers() == [])
        with pytest.raises(PluginError, match=f"DRA driver {DRIVER} is not registered"):
            registry.plugins.get(DRIVER)
        await registry.clock.advance(29)
        assert registry.wiped == []
        await registry.clock.advance(2)
        assert registry.wiped == [DRIVER]
        await registry.plugins.stop()

    _in_folder(body)


def test_a_driver_that_comes_back_in_time_keeps_its_slices() -> None:
    async def body(folder: Path) -> None:
        registry = Registry(folder)
        registry.plugins.start()
        driver = Driver(folder, folder / "cdi")
        await driver.server.start()
        await until(lambda: registry.plugins.drivers() == [DRIVER])
        await driver.server.stop()
        await until(lambda: registry.plugins.drivers() == [])
        await registry.clock.advance(20)
        second = Driver(folder, folder / "cdi")
        await second.server.start()
        await until(lambda: registry.plugins.drivers() == [DRIVER])
        await registry.clock.advance(60)
        assert registry.wiped == []
        await second.server.stop()
        await registry.plugins.stop()

    _in_folder(body)


def test_a_driver_after_a_killed_one_is_told_that_it_is_registered() -> None:
    """Its socket has the path of the one before, and on many file systems its inode too."""

    async def body(folder: Path) -> None:
        registry = Registry(folder)
        registry.plugins.start()
        first, second = (Driver(folder, folder / "cdi") for _ in range(2))
        await first.server.start()
        await until(first.server.registered.is_set)
        await first.server.kill()
        await second.server.start()
        await until(second.server.registered.is_set)
        assert registry.plugins.get(DRIVER).connected
        await second.server.stop()
        await registry.plugins.stop()

    _in_folder(body)


def test_garbage_behind_a_socket_harms_nobody() -> None:
    async def body(folder: Path) -> None:
        registry = Registry(folder)
        (folder / "plugins_registry").mkdir()
        garbage = socket.socket(socket.AF_UNIX)
        garbage.bind(str(folder / "plugins_registry" / "garbage-reg.sock"))
        (folder / "plugins_registry" / "file").write_bytes(b"\x00\xff")
        registry.plugins.start()
        driver = Driver(folder, folder / "cdi")
        await driver.server.start()
        await until(lambda: registry.plugins.drivers() == [DRIVER])
        response = await registry.plugins.get(DRIVER).prepare([("default", "uid", "claim")])
        assert [device.device_name for device in response.claims["uid"].devices] == ["dev-gpu", "dev-other"]
        await driver.server.stop()
        await registry.plugins.stop()
        garbage.close()

    _in_folder(body)


def _in_folder(body: object) -> None:
    with tempfile.TemporaryDirectory(prefix="dk") as folder:
        asyncio.run(body(Path(folder)))  # type: ignore[operator]
