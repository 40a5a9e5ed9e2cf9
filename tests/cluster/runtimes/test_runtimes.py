"""Both runtimes by one table: what holds for a container whoever runs it. runc needs root and is skipped without."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import tempfile
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from drakkar.cluster.runtimes.process import ProcessRuntime
from drakkar.cluster.runtimes.runc import RuncRuntime, unavailable
from drakkar.cluster.runtimes.runtime import ContainerError, ContainerRequest, ExecRequest, Mount, Runtime

_refusal = unavailable()
RUNC = pytest.param(
    RuncRuntime,
    id="runc",
    marks=[pytest.mark.root, pytest.mark.skipif(_refusal is not None, reason=str(_refusal))],
)
BOTH = pytest.mark.parametrize("kind", [pytest.param(ProcessRuntime, id="process"), RUNC])
ONLY_RUNC = pytest.mark.parametrize("kind", [RUNC])

Test = Callable[["Bench"], Awaitable[None]]


class Bench:
    def __init__(self, runtime: Runtime, folder: Path) -> None:
        self.runtime = runtime
        self.folder = folder

    async def start(self, *command: str, **options: Any) -> str:
        container_id = uuid.uuid4().hex
        request = ContainerRequest(
            id=container_id, name="c", image="x", log=self.folder / f"{container_id}.log", command=command, **options
        )
        await self.runtime.create(request)
        await self.runtime.start(container_id)
        return container_id

    def log(self, container_id: str) -> list[str]:
        """The text of the log's lines, stdout and stderr."""
        lines = (self.folder / f"{container_id}.log").read_text().splitlines()
        return [line.split(" ", 3)[3] for line in lines]

    async def output(self, container_id: str, **request: Any) -> tuple[dict[int, bytes], int]:
        session = await self.runtime.exec(container_id, ExecRequest(**request))
        found: dict[int, bytes] = {}
        async for channel, data in session.output():
            found[channel] = found.get(channel, b"") + data
        code = await session.wait()
        await session.close()
        return found, code

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(8):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def spec(self, edits: dict[str, Any]) -> dict[str, Any]:
        """A CDI file with one device; the options for a container that uses it."""
        cdi = self.folder / "cdi"
        cdi.mkdir(exist_ok=True)
        document = {
            "cdiVersion": "0.6.0",
            "kind": "example.com/gpu",
            "devices": [{"name": "one", "containerEdits": edits}],
        }
        (cdi / "example.json").write_text(json.dumps(document))
        return {"cdi_devices": ["example.com/gpu=one"], "cdi_dirs": [cdi]}


def bench(kind: type[Any], test: Test) -> None:
    async def body() -> None:
        with tempfile.TemporaryDirectory(prefix="dk") as folder:
            runtime = kind(Path(folder) / "rt")
            await runtime.open()
            try:
                await test(Bench(runtime, Path(folder)))
            finally:
                await runtime.close()

    asyncio.run(body())


@BOTH
def test_output_exit_code_and_environment(kind: type[Any]) -> None:
    async def test(b: Bench) -> None:
        script = 'echo "$A"; echo err >&2; printf partial; exit 9'
        container = await b.start("sh", "-c", script, env={"A": "a value"})
        assert (await b.runtime.wait(container)).code == 9
        assert sorted(b.log(container)) == ["a value", "err", "partial"]
        text = (b.folder / f"{container}.log").read_text()
        assert " stderr F err\n" in text and " stdout P partial\n" in text

    bench(kind, test)


@BOTH
def test_a_signal_ends_it_with_128_plus_its_number(kind: type[Any]) -> None:
    async def test(b: Bench) -> None:
        container = await b.start("sleep", "60")
        await b.runtime.kill(container, signal.SIGKILL)
        assert (await b.runtime.wait(container)).code == 137

    bench(kind, test)


@BOTH
def test_a_missing_program_is_a_start_error(kind: type[Any]) -> None:
    async def test(b: Bench) -> None:
        with pytest.raises(ContainerError, match="executable file not found") as caught:
            await b.start("no-such-program")
        assert caught.value.reason == "StartError"

    bench(kind, test)


@BOTH
def test_exec_has_separate_streams_input_and_a_code(kind: type[Any]) -> None:
    async def test(b: Bench) -> None:
        container = await b.start("sleep", "60", env={"A": "x"})
        found, code = await b.output(container, command=["sh", "-c", 'echo "$A"; echo e >&2; exit 5'])
        assert (found, code) == ({1: b"x\n", 2: b"e\n"}, 5)
        session = await b.runtime.exec(container, ExecRequest(command=["cat"], stdin=True))
        await session.write_stdin(b"through")
        await session.close_stdin()
        assert b"".join([data async for _, data in session.output()]) == b"through"
        assert await session.wait() == 0
        await session.close()

    bench(kind, test)


@BOTH
def test_exec_on_a_terminal_knows_its_size(kind: type[Any]) -> None:
    async def test(b: Bench) -> None:
        container = await b.start("sleep", "60")
        # The size travels by a signal and may come after the first line of input, so the script is asked again.
        script = 'tty; while read x; do stty size; [ "$x" = end ] && exit 4; done'
        session = await b.runtime.exec(container, ExecRequest(command=["sh", "-c", script], stdin=True, tty=True))
        await session.resize(132, 43)
        await session.write_stdin(b"\n")
        output = b""
        async for _, data in session.output():
            output += data
            if b"43 132" in output:
                await session.write_stdin(b"end\n")
            elif data.endswith(b"\n"):
                await session.write_stdin(b"\n")
        assert b"/dev/pts/" in output
        assert await session.wait() == 4
        await session.close()

    bench(kind, test)


@BOTH
def test_closing_an_exec_ends_its_process(kind: type[Any]) -> None:
    async def test(b: Bench) -> None:
        container = await b.start("sleep", "60")
        session = await b.runtime.exec(container, ExecRequest(command=["sh", "-c", "echo up; sleep 60"]))
        async for _, data in session.output():
            assert data == b"up\n"
            break
        await session.close()
        assert await session.wait() == 137

    bench(kind, test)


@BOTH
def test_attach_hears_the_main_process_and_writes_to_it(kind: type[Any]) -> None:
    async def test(b: Bench) -> None:
        container = await b.start("sh", "-c", "read x; echo got $x; read y; echo got $y", stdin=True)
        session = await b.runtime.attach(container, stdin=True)
        await session.write_stdin(b"one\ntwo\n")
        output = b""
        async for _, data in session.output():
            output += data
        assert output == b"got one\ngot two\n"
        assert await session.wait() == 0
        await session.close()

    bench(kind, test)


@BOTH
def test_a_device_name_that_does_not_resolve_leaves_nothing_behind(kind: type[Any]) -> None:
    async def test(b: Bench) -> None:
        with pytest.raises(ContainerError, match="unresolvable CDI devices example.com/gpu=nine") as caught:
            await b.start("true", cdi_devices=["example.com/gpu=nine"], cdi_dirs=[b.folder / "cdi"])
        assert caught.value.reason == "CreateContainerError"
        assert not b.runtime.containers()
        assert not list((b.folder / "rt" / "containers").iterdir())

    bench(kind, test)


@BOTH
def test_an_injected_program_is_on_the_path_and_its_variable_is_set(kind: type[Any]) -> None:
    async def test(b: Bench) -> None:
        tool = b.folder / "tool"
        tool.write_text("#!/bin/sh\necho the tool says $GPU\n")
        tool.chmod(0o755)
        edits = {
            "env": ["GPU=here"],
            "mounts": [{"hostPath": str(tool), "containerPath": "/usr/bin/gpu-tool", "options": ["ro", "bind"]}],
        }
        container = await b.start("gpu-tool", **b.spec(edits))
        await b.runtime.wait(container)
        assert b.log(container) == ["the tool says here"]
        with pytest.raises(ContainerError, match="not found"):
            await b.start("gpu-tool")

    bench(kind, test)


@BOTH
def test_delete_removes_every_trace_but_the_log(kind: type[Any]) -> None:
    async def test(b: Bench) -> None:
        container = await b.start("sleep", "60")
        bundle = b.runtime.containers()[0].bundle
        await b.runtime.delete(container)
        assert not bundle.exists() and not b.runtime.containers()
        assert (b.folder / f"{container}.log").exists()
        with pytest.raises(ContainerError, match="no such container"):
            await b.runtime.exec(container, ExecRequest(command=["true"]))

    bench(kind, test)


@BOTH
def test_a_released_container_keeps_its_description_only(kind: type[Any]) -> None:
    async def test(b: Bench) -> None:
        container = await b.start("true", annotations={"name": "c"})
        await b.runtime.wait(container)
        for _ in range(2):
            await b.runtime.release(container)
        record = b.runtime.containers()[0]
        assert json.loads((record.bundle / "config.json").read_text())["annotations"] == {"name": "c"}
        assert not (record.bundle / "rootfs").exists()
        await b.runtime.delete(container)
        assert not record.bundle.exists()

    bench(kind, test)


def test_a_process_says_what_it_could_not_apply() -> None:
    async def test(b: Bench) -> None:
        edits = {
            "deviceNodes": [{"path": "/dev/gpu0", "type": "c", "major": 195, "minor": 0, "permissions": "rw"}],
            "hooks": [{"hookName": "createContainer", "path": "/bin/true"}],
        }
        script = 'cat "$DRAKKAR_ROOT/dev/gpu0"; ls -A "$DRAKKAR_ROOT"'
        container = await b.start("sh", "-c", script, **b.spec(edits))
        await b.runtime.wait(container)
        assert b.log(container)[0] == "c 195 0 rw"
        assert ".drakkar-process-root" in b.log(container)
        edits_named = {limitation.edit for limitation in b.runtime.limitations(container)}
        assert {"device node /dev/gpu0", "createContainer hook /bin/true", "name spaces"} <= edits_named

    bench(ProcessRuntime, test)


def test_a_lost_process_is_reported_as_ended_by_the_next_runtime() -> None:
    async def body(folder: Path) -> None:
        first = ProcessRuntime(folder / "rt")
        await first.open()
        b = Bench(first, folder)
        mark = f"{uuid.uuid4().int % 10**9 + 10**9}"
        await b.start("sleep", mark)
        await first.close(kill=False)  # nobody is left who could see how the process ends
        second = ProcessRuntime(folder / "rt")
        await second.open()
        found = second.containers()[0]
        assert found.exit is not None and not found.exit.known and found.exit.code == 137
        await b.until(lambda: not _running(mark))
        await second.close()

    with tempfile.TemporaryDirectory(prefix="dk") as folder:
        asyncio.run(body(Path(folder)))


@BOTH
def test_nothing_that_a_container_left_in_the_background_outlives_it(kind: type[Any]) -> None:
    async def test(b: Bench) -> None:
        mark = f"{uuid.uuid4().int % 10**9 + 10**9}"
        container = await b.start("sh", "-c", f"sleep {mark} & while [ ! -e /tmp/{mark} ]; do sleep 0.01; done")
        await b.output(container, command=["sh", "-c", f"setsid sleep {mark} >/dev/null 2>&1 & echo"], stdout=True)
        await b.until(lambda: _running(mark) == 2)
        await b.output(container, command=["touch", f"/tmp/{mark}"])
        await b.runtime.wait(container)
        Path("/tmp", mark).unlink(missing_ok=True)  # the host's, where containers share it
        await b.runtime.delete(container)
        await b.until(lambda: not _running(mark))

    bench(kind, test)


@pytest.mark.parametrize("recorded", [True, False])
def test_what_a_killed_cluster_left_running_is_ended_by_the_next_runtime(recorded: bool) -> None:
    async def body(folder: Path) -> None:
        first = ProcessRuntime(folder / "rt")
        await first.open()
        b = Bench(first, folder)
        mark = f"{uuid.uuid4().int % 10**9 + 10**9}"
        await b.start("sleep", mark)
        assert _running(mark) == 1
        if not recorded:  # killed between starting the process and writing that down
            (first.containers()[0].bundle / "record.json").unlink()
        second = ProcessRuntime(folder / "rt")
        await second.open()
        await b.until(lambda: not _running(mark))
        await second.close()

    with tempfile.TemporaryDirectory(prefix="dk") as folder:
        asyncio.run(body(Path(folder)))


def _running(mark: str) -> int:
    """How many `sleep <mark>` there are."""
    found = 0
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += file.read_bytes().endswith(f"sleep\0{mark}\0".encode())
    return found


@ONLY_RUNC
def test_devices_appear_with_their_numbers_and_the_cgroup_decides(kind: type[Any]) -> None:
    async def test(b: Bench) -> None:
        # 10:229 is fuse: its driver exists, and opening it is harmless.
        allowed = {"deviceNodes": [{"path": "/dev/gpu0", "type": "c", "major": 10, "minor": 229}]}
        script = "stat -c '%F %t:%T' /dev/gpu0; head -c 0 /dev/gpu0 && echo readable"
        container = await b.start("sh", "-c", script, **b.spec(allowed))
        await b.runtime.wait(container)
        assert b.log(container) == ["character special file a:e5", "readable"]

    bench(kind, test)


@ONLY_RUNC
def test_a_device_without_permissions_is_there_and_cannot_be_opened(kind: type[Any]) -> None:
    async def test(b: Bench) -> None:
        node = {"path": "/dev/gpu0", "type": "c", "major": 10, "minor": 229, "permissions": "none"}
        container = await b.start("sh", "-c", "head -c 0 /dev/gpu0", **b.spec({"deviceNodes": [node]}))
        assert (await b.runtime.wait(container)).code == 1
        assert "Operation not permitted" in b.log(container)[0]

    bench(kind, test)


@ONLY_RUNC
def test_the_hosts_programs_are_there_and_its_private_places_are_empty(kind: type[Any]) -> None:
    async def test(b: Bench) -> None:
        script = "ls -A /root /home /run /tmp; ls /usr/bin/bash; ls /dev; echo x >/etc/made-here; cat /etc/made-here"
        container = await b.start("sh", "-c", script, hostname="pod-1")
        assert (await b.runtime.wait(container)).code == 0
        lines = b.log(container)
        assert lines[:9] == ["/home:", "", "/root:", "", "/run:", "", "/tmp:", "/usr/bin/bash", "fd"]
        assert lines[-1] == "x" and "sda" not in lines and "vda" not in lines and "kvm" not in lines
        assert not Path("/etc/made-here").exists()

    bench(kind, test)


@ONLY_RUNC
def test_hidden_files_of_the_host_are_not_there(kind: type[Any]) -> None:
    async def body(folder: Path) -> None:
        runtime = kind(folder / "rt", hidden=["/usr/bin/pytho[n]3", "/usr/bin/no-such-*"])
        await runtime.open()
        try:
            b = Bench(runtime, folder)
            container = await b.start("sh", "-c", "exec 2>&1; ls /usr/bin/python3; command -v bash")
            await runtime.wait(container)
            assert "No such file" in b.log(container)[0] and b.log(container)[1] == "/usr/bin/bash"
        finally:
            await runtime.close()

    with tempfile.TemporaryDirectory(prefix="dk") as folder:
        asyncio.run(body(Path(folder)))


@ONLY_RUNC
def test_a_failing_hook_is_a_start_error_with_its_reason(kind: type[Any]) -> None:
    async def test(b: Bench) -> None:
        hook = b.folder / "hook.sh"
        hook.write_text("#!/bin/sh\necho no device >&2\nexit 3\n")
        hook.chmod(0o755)
        edits = {"hooks": [{"hookName": "createContainer", "path": str(hook), "args": ["hook.sh"], "env": ["A=1"]}]}
        with pytest.raises(ContainerError, match="error running hook") as caught:
            await b.start("true", **b.spec(edits))
        assert caught.value.reason == "StartError"

    bench(kind, test)


@ONLY_RUNC
def test_volumes_are_mounted_and_read_only_means_it(kind: type[Any]) -> None:
    async def test(b: Bench) -> None:
        data = b.folder / "data"
        data.mkdir()
        (data / "file").write_text("content\n")
        mounts = [Mount(data, "/data", read_only=True), Mount(data, "/rw")]
        script = "exec 2>&1; cat /data/file; touch /data/x; echo new >/rw/new"
        container = await b.start("sh", "-c", script, mounts=mounts)
        await b.runtime.wait(container)
        assert b.log(container)[0] == "content"
        assert "Read-only file system" in b.log(container)[1]
        assert (data / "new").read_text() == "new\n"

    bench(kind, test)


@ONLY_RUNC
def test_a_container_survives_its_runtime_and_its_output_and_code_are_not_lost(kind: type[Any]) -> None:
    async def body(folder: Path) -> None:
        first = kind(folder / "rt")
        await first.open()
        b = Bench(first, folder)
        go = folder / "go"
        mounts = [Mount(folder, "/share")]
        script = "echo before; while [ ! -e /share/go ]; do sleep 0.02; done; echo after; exit 6"
        container = await b.start("sh", "-c", script, mounts=mounts, annotations={"name": "c"})
        await first.close(kill=False)
        second = kind(folder / "rt")
        await second.open()
        try:
            found = second.containers()[0]
            assert found.exit is None and found.annotations["name"] == "c"
            go.touch()
            assert (await second.wait(container)).code == 6
            assert b.log(container) == ["before", "after"]
        finally:
            await second.close()

    with tempfile.TemporaryDirectory(prefix="dk") as folder:
        asyncio.run(body(Path(folder)))
