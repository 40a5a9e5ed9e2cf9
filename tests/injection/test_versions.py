"""Minimum versions and the downgrade for older consumers."""

from __future__ import annotations

import pytest

from drakkar.injection.errors import CdiError
from drakkar.injection.spec import CdiSpec
from drakkar.injection.versions import EARLIEST, VERSIONS


def spec(edits: str, *, name: str = "dev", kind: str = "vendor.com/gpu", more: str = "") -> CdiSpec:
    device = f"{{name: {name}, containerEdits: {edits}}}"
    return CdiSpec.parse(f"cdiVersion: 1.1.0\nkind: {kind}\n{more}devices: [{device}]\n")


def test_what_only_refines_is_dropped() -> None:
    full = spec(
        "{mounts: [{hostPath: /a, containerPath: /b, type: bind}], additionalGids: [44],"
        " deviceNodes: [{path: /dev/x, hostPath: /dev/x}]}",
        more="annotations: {a: b}\n",
    )
    assert full.minimum_version == "0.7.0"
    assert full.downgraded("0.6.0").raw.annotations == {"a": "b"}
    oldest = full.downgraded("0.3.0").to_dict()
    assert oldest == {
        "cdiVersion": "0.3.0",
        "kind": "vendor.com/gpu",
        "devices": [
            {
                "name": "dev",
                "containerEdits": {
                    "deviceNodes": [{"path": "/dev/x"}],
                    "mounts": [{"hostPath": "/a", "containerPath": "/b"}],
                },
            }
        ],
        "containerEdits": {},
    }
    assert CdiSpec.from_object(oldest).minimum_version == "0.3.0"


@pytest.mark.parametrize(
    ("made", "maximum", "says"),
    [
        (spec("{netDevices: [{hostInterfaceName: a, name: b}]}"), "1.0.0", "netDevices in device dev needs CDI 1.1.0"),
        (spec("{intelRdt: {closID: a}}"), "0.6.0", "intelRdt"),
        (spec("{env: [A=b]}", kind="vendor.com/gpu.shared"), "0.5.0", "a dot in the class"),
        (spec("{env: [A=b]}", name='"0"'), "0.4.0", "begins with a digit"),
        (spec("{deviceNodes: [{path: /dev/x, hostPath: /host/dev/x}]}"), "0.4.0", "hostPath"),
    ],
)
def test_what_changes_the_container_is_refused(made: CdiSpec, maximum: str, says: str) -> None:
    with pytest.raises(CdiError, match=says) as raised:
        made.downgraded(maximum)
    assert raised.value.next_step


@pytest.mark.parametrize("maximum", VERSIONS[VERSIONS.index(EARLIEST) :])
def test_the_declared_version_is_the_one_needed(maximum: str) -> None:
    assert spec("{env: [A=b]}").downgraded(maximum).raw.cdi_version == "0.3.0"


@pytest.mark.parametrize("maximum", ["0.2.0", "2.0.0", "", "v1.0.0"])
def test_an_unknown_maximum_lists_the_known_ones(maximum: str) -> None:
    with pytest.raises(CdiError) as raised:
        spec("{env: [A=b]}").downgraded(maximum)
    assert "0.3.0, 0.4.0" in raised.value.expected
