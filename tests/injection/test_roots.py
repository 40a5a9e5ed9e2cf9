"""Moving a specification to another root, and what is said about two that differ."""

from __future__ import annotations

from typing import Any

import pytest

from drakkar.injection.changes import changes
from drakkar.injection.model import plain
from drakkar.injection.roots import transform_root
from drakkar.injection.simplify import simplified, with_merged_device
from drakkar.injection.spec import CdiSpec


def spec(**edits: Any) -> CdiSpec:
    return CdiSpec.from_object(
        {
            "cdiVersion": "0.5.0" if "hostPath" in str(edits.get("deviceNodes")) else "0.3.0",
            "kind": "acme.com/gpu",
            "devices": [{"name": "gpu0", "containerEdits": edits or {"env": ["A=b"]}}],
        }
    )


def edits_after(given: CdiSpec, *roots: str, relative_to: Any = "host") -> dict[str, Any]:
    moved = transform_root(given.raw, *roots, relative_to=relative_to)
    CdiSpec.from_object(plain(moved))
    edits: dict[str, Any] = plain(moved)["devices"][0]["containerEdits"]
    return edits


HOOKS = [
    {"hookName": "createContainer", "path": "/run/driver/bin/hook", "args": ["hook", "--link", "a::/run/driver/b"]},
    {"hookName": "createRuntime", "path": "/run/driver/bin/hook", "args": ["hook", "--root", "/run/driver"]},
    {"hookName": "startContainer", "path": "/run/driver/bin/hook", "args": ["hook", "/run/driver/c"]},
]


def test_relative_to_the_host_the_runtimes_paths_move() -> None:
    given = spec(
        deviceNodes=[{"path": "/dev/nvidia0", "hostPath": "/run/driver/dev/nvidia0"}, {"path": "/dev/nvidiactl"}],
        mounts=[{"hostPath": "/run/driver/lib/a.so", "containerPath": "/run/driver/lib/a.so"}],
        hooks=HOOKS,
    )
    edits = edits_after(CdiSpec(given.raw), "/run/driver", "/")
    assert edits["deviceNodes"] == [
        {"path": "/dev/nvidia0", "hostPath": "/dev/nvidia0"},
        {"path": "/dev/nvidiactl"},
    ]
    assert edits["mounts"] == [{"hostPath": "/lib/a.so", "containerPath": "/run/driver/lib/a.so"}]
    assert [(hook["path"], hook["args"][-1]) for hook in edits["hooks"]] == [
        ("/bin/hook", "a::/run/driver/b"),
        ("/bin/hook", "/"),
        ("/run/driver/bin/hook", "/run/driver/c"),
    ]


def test_relative_to_the_container_the_process_paths_move() -> None:
    given = spec(
        deviceNodes=[{"path": "/run/driver/dev/nvidia0", "hostPath": "/run/driver/dev/nvidia0"}],
        mounts=[{"hostPath": "/run/driver/lib/a.so", "containerPath": "/run/driver/lib/a.so"}],
        hooks=HOOKS,
    )
    edits = edits_after(given, "/run/driver", "/opt", relative_to="container")
    assert edits["deviceNodes"] == [{"path": "/opt/dev/nvidia0", "hostPath": "/run/driver/dev/nvidia0"}]
    assert edits["mounts"] == [{"hostPath": "/run/driver/lib/a.so", "containerPath": "/opt/lib/a.so"}]
    assert [(hook["path"], hook["args"][-1]) for hook in edits["hooks"]] == [
        ("/run/driver/bin/hook", "a::/opt/b"),
        ("/run/driver/bin/hook", "/run/driver"),
        ("/opt/bin/hook", "/opt/c"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "path", "moved"),
    [
        ("/run/driver", "/", "/run/driver", "/"),
        ("/run/driver/", "/", "/run/driver/x", "/x"),
        ("/run/dri", "/", "/run/driver/x", "/run/driver/x"),
        ("/", "/host", "/lib/x", "/host/lib/x"),
        ("/a", "/a", "/a/x", "/a/x"),
        ("/a", "", "/a/x", "/x"),
    ],
)
def test_only_whole_names_of_a_path_are_the_root(old: str, new: str, path: str, moved: str) -> None:
    given = spec(mounts=[{"hostPath": path, "containerPath": "/x"}])
    assert edits_after(given, old, new)["mounts"][0]["hostPath"] == moved


def test_a_node_that_gets_a_host_path_needs_a_later_version() -> None:
    given = spec(deviceNodes=[{"path": "/dev/nvidia0"}])
    assert transform_root(given.raw, "/", "/host").cdi_version == "0.5.0"
    assert transform_root(given.raw, "/other", "/host").cdi_version == "0.3.0"


def device(name: str, *nodes: str) -> dict[str, Any]:
    return {"name": name, "containerEdits": {"deviceNodes": [{"path": path} for path in nodes]}}


def made(*devices: dict[str, Any], **common: Any) -> CdiSpec:
    tree = {"cdiVersion": "1.1.0", "kind": "acme.com/gpu", "devices": list(devices), "containerEdits": common}
    return CdiSpec.from_object(tree)


def test_what_all_containers_get_is_taken_out_of_the_devices_but_none_is_left_empty() -> None:
    given = made(
        device("b", "/dev/ctl", "/dev/b"),
        device("a", "/dev/ctl"),
        deviceNodes=[{"path": "/dev/ctl"}],
        env=["A=b", "A=b"],
    )
    tidy = plain(simplified(given.raw))
    assert tidy["devices"] == [device("a", "/dev/ctl"), device("b", "/dev/b")]
    assert tidy["containerEdits"] == {"env": ["A=b"], "deviceNodes": [{"path": "/dev/ctl"}]}


def test_the_merged_device_has_everything_once_in_order_of_depth() -> None:
    given = made(device("a", "/dev/sub/a", "/dev/z"), device("b", "/dev/z", "/dev/b"))
    whole = plain(with_merged_device(given.raw))["devices"][1]
    assert whole == device("all", "/dev/b", "/dev/z", "/dev/sub/a")
    assert with_merged_device(made(device("all", "/dev/a")).raw).devices[0].name == "all"


def test_changes_are_named() -> None:
    before = made(device("a", "/dev/a"), device("b", "/dev/b"), env=["V=1"])
    after = made(device("a", "/dev/a2"), device("c", "/dev/c"), env=["V=2"])
    assert changes(before.raw, after.raw) == [
        "1 device new: c",
        "1 device gone: b",
        "1 device changed: a",
        "1 variable new: V=2",
        "1 variable gone: V=1",
    ]
    assert changes(before.raw, before.raw) == []
    assert changes(None, before.raw) == ["2 devices: a, b"]
