"""`drakkar verify`: the devices seen inside a pod, against its claims and slices."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drakkar.cli.options import connection, emit, output, table

if TYPE_CHECKING:
    from drakkar.evidence.captures import Gpu
    from drakkar.evidence.snapshot import Snapshot
    from drakkar.evidence.visible import Expected

VISIBLE = "visible, not CUDA-tested"
WRONG, UNDECIDED = 1, 3


@click.command("verify")
@click.argument("target", metavar="pod/NAME")
@click.option("-c", "--container", default="", help="Only this container.")
@click.option("--ssh", default="", metavar="COMMAND",
              help="Look from the node, e.g. 'ssh root@{node}': by cgroup, nothing runs in the pod.")  # fmt: skip
@click.option(
    "--seconds", type=click.FloatRange(0.1), default=20.0, show_default=True, help="Longest wait for an answer."
)
@connection
@output
def command(
    target: str,
    container: str,
    ssh: str,
    seconds: float,
    kubeconfig: Path | None,
    context: str,
    namespace: str,
    output: str,
) -> None:
    """Compare the devices that a pod's containers see with its claims.

    \b
    drakkar verify pod/train-0                          runs nvidia-smi -L in each container
    drakkar verify pod/train-0 --ssh 'ssh root@{node}'  looks from the node; images without
                                                        a shell or nvidia-smi are no matter

    A device that is seen is visible, and not CUDA-tested: looking proves injection, not that a
    program can use it. Exits with 0 when each container sees its own devices and no others, 1 when
    not, 3 when nothing could be seen.
    """
    answers = asyncio.run(_verify(target, container, ssh, seconds, kubeconfig, context, namespace))
    if output != "text":
        emit({"pod": target, "proves": VISIBLE, "containers": answers}, output)
    else:
        _show(answers)
    states = {answer["state"] for answer in answers}
    raise click.exceptions.Exit(WRONG if "wrong" in states else UNDECIDED if "unknown" in states else 0)


async def _verify(
    target: str, container: str, ssh: str, seconds: float, kubeconfig: Path | None, context: str, namespace: str
) -> list[dict[str, Any]]:
    from drakkar.cli.clients import connect
    from drakkar.diagnosis.targets import resolve_target
    from drakkar.errors import DrakkarError
    from drakkar.evidence.take import take
    from drakkar.evidence.visible import expected_devices
    from drakkar.kube.https import HttpsTransport

    client, connected = connect(kubeconfig, context)
    transport = client.transport
    assert isinstance(transport, HttpsTransport)
    try:
        space = namespace or connected.namespace or "default"
        snapshot = await take(client, logs_of=(), namespace=space)
        pod = resolve_target(snapshot, target if "/" in target else f"pod/{target}", space)
        if pod.get("kind") != "Pod":
            raise DrakkarError(f"{target} is no pod", reason="InvalidTarget", expected="pod/NAME")
        wanted = expected_devices(snapshot, pod)
        if container and container not in wanted:
            raise DrakkarError(
                f"the pod has no container {container}", reason="NotFound", expected=f"one of {', '.join(wanted)}"
            )
        names = [name for name in wanted if container in ("", name)]
        if ssh:
            return _from_node(snapshot, pod, {name: wanted[name] for name in names}, ssh, seconds)
        running = _running(pod)
        return [
            await _inside(transport, pod, name, wanted[name], seconds)
            if name in running
            else _unknown(name, wanted[name], "the container does not run")
            for name in names
            if name in running or wanted[name]
        ]
    finally:
        await client.close()


async def _inside(
    transport: Any, pod: dict[str, Any], container: str, expected: list[Expected], seconds: float
) -> dict[str, Any]:
    """What `nvidia-smi -L` in a container says."""
    from drakkar.errors import DrakkarError
    from drakkar.evidence.captures import NodeCapture
    from drakkar.evidence.snapshot import name_of, namespace_of
    from drakkar.kube.execution import execute

    command = ("nvidia-smi", "-L")
    try:
        done = await execute(transport, namespace_of(pod), name_of(pod), container, command, seconds=seconds)
    except DrakkarError as error:
        return _unknown(container, expected, error.message)
    words = (done.stderr or done.message or done.stdout).strip().splitlines()
    gpus = NodeCapture("", {"nvidia-smi-L.txt": done.stdout}).gpus if done.stdout.strip() else None
    if done.status != 0 and not gpus:
        if not expected and "not found" in " ".join(words).lower():
            return _answer(container, expected, ())
        told = f"nvidia-smi -L ended with {done.status}: {words[-1] if words else 'no output'}"
        return _unknown(container, expected, told)
    return _answer(container, expected, gpus or ())


def _from_node(
    snapshot: Snapshot, pod: dict[str, Any], wanted: dict[str, list[Expected]], ssh: str, seconds: float
) -> list[dict[str, Any]]:
    """What the pod's cgroups and root directories show from the node; containers cannot be told apart there."""
    from drakkar.cli.capture import shell
    from drakkar.evidence.looking import look
    from drakkar.evidence.snapshot import uid_of

    node = (pod.get("spec") or {}).get("nodeName", "")
    seen = look(node, uid_of(pod), shell(node, ssh), seconds=seconds)
    everything = [device for devices in wanted.values() for device in devices]
    unique = list({device.device: device for device in everything}.values())
    label = f"all of {len(seen.containers)} on {node}"
    if not seen.containers:
        return [_unknown(label, unique, "no process of the pod's cgroup runs there")]
    if seen.nodes and not seen.gpus:
        return [_unknown(label, unique, "the kernel driver lists no GPU, so device nodes have no UUIDs")]
    return [{**_answer(label, unique, seen.as_gpus(), partitions=False), "deviceNodes": list(seen.nodes)}]


def _answer(
    container: str, expected: list[Expected], gpus: Sequence[Gpu], *, partitions: bool = True
) -> dict[str, Any]:
    from drakkar.evidence.visible import compare

    sight = compare(expected, gpus, partitions=partitions)
    state = "wrong" if not sight.right else "unknown" if sight.undecided and not sight.visible else "visible"
    return {
        "container": container,
        "state": state,
        "visible": [each.to_dict() for each in sight.visible],
        "missing": [each.to_dict() for each in sight.missing],
        "unexpected": list(sight.unexpected),
        "undecided": [each.to_dict() for each in sight.undecided],
    }


def _unknown(container: str, expected: list[Expected], why: str) -> dict[str, Any]:
    state = "unknown" if expected else "visible"
    return {"container": container, "state": state, "why": why, "undecided": [each.to_dict() for each in expected]}


def _running(pod: dict[str, Any]) -> set[str]:
    status = pod.get("status") or {}
    states = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return {state.get("name", "") for state in states if (state.get("state") or {}).get("running")}


def _show(answers: list[dict[str, Any]]) -> None:
    rows = []
    for answer in answers:
        lines = [
            *((each, VISIBLE) for each in answer.get("visible", ())),
            *((each, "NOT VISIBLE") for each in answer.get("missing", ())),
            *((each, "unknown") for each in answer.get("undecided", ())),
            *(({"device": "-", "uuid": uuid}, "SEEN, AND OF NO CLAIM OF IT") for uuid in answer.get("unexpected", ())),
        ]
        rows += [[answer["container"], each["device"], each.get("uuid", "-"), state] for each, state in lines]
        if not lines:
            rows.append([answer["container"], "-", "-", "no devices, and none are claimed"])
    table(["CONTAINER", "DEVICE", "UUID", "STATE"], rows or [["-", "-", "-", "the pod has no containers"]])
    for answer in answers:
        if answer.get("why") and answer["state"] == "unknown":
            click.echo(f"{answer['container']}: {answer['why']}", err=True)
