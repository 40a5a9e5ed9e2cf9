"""Certificates: a CA per cluster, a server certificate clients accept, and files nobody else can read."""

from __future__ import annotations

import asyncio
import os
import ssl
import stat
from pathlib import Path

import pytest
import yaml

from drakkar.cluster import pki
from drakkar.cluster.apiserver.serving import serve
from drakkar.errors import DrakkarError
from tests.cluster.apiserver.world import World


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> pki.Pki:
    return pki.prepare(tmp_path_factory.mktemp("cluster") / "pki").wait()


def test_a_client_that_trusts_the_ca_connects_and_another_does_not(made: pki.Pki) -> None:
    async def main() -> None:
        world = World()
        listener = await serve(world.server, certificate=made.certificate, key=made.key)
        port = int(listener.url.rpartition(":")[2])
        trusting = ssl.create_default_context(cafile=str(made.authority))
        for host in ("127.0.0.1", "localhost"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname=host)
            writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert (await reader.read()).endswith(b"ok")
            writer.close()
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("127.0.0.1", port, ssl=ssl.create_default_context())
        await listener.stop()

    asyncio.run(main())


def test_keys_are_private(made: pki.Pki) -> None:
    for path in (made.key, made.token_key):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_second_start_keeps_what_is_there(made: pki.Pki) -> None:
    before = made.certificate.read_bytes()
    assert pki.prepare(made.directory).wait().certificate.read_bytes() == before


def test_an_old_or_incomplete_set_is_made_anew(tmp_path: Path) -> None:
    made = pki.prepare(tmp_path).wait()
    before = made.certificate.read_bytes()
    old = made.certificate.stat().st_mtime - 360 * 86400
    os.utime(made.certificate, (old, old))
    assert pki.prepare(tmp_path).wait().certificate.read_bytes() != before
    made.key.unlink()
    assert pki.prepare(tmp_path).wait().key.exists()


def test_a_place_that_cannot_be_used_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DrakkarError) as caught:
        pki.prepare(tmp_path / "file" / "pki")
    assert caught.value.reason == "UnusableDirectory"


def test_the_kubeconfig_has_all_a_client_needs(made: pki.Pki) -> None:
    config = yaml.safe_load(pki.kubeconfig("https://127.0.0.1:6443", made.authority, "secret", name="lab"))
    assert config["current-context"] == "lab"
    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:6443"
    assert config["users"][0]["user"]["token"] == "secret"
