"""The tables of types say what the Go types of Kubernetes say."""

import pytest

from drakkar.cluster.machinery import schemas


def test_kinds_are_found_by_version() -> None:
    assert schemas.struct_of("v1", "Pod") is not None
    assert schemas.struct_of("apps/v1", "Deployment") is not None
    assert schemas.struct_of("apps/v1", "Pod") is None
    assert schemas.struct_of("example.com/v1", "Pod") is None


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1beta2"])
def test_every_version_of_dynamic_resource_allocation_is_there(version: str) -> None:
    for kind in ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"):
        assert schemas.struct_of(f"resource.k8s.io/{version}", kind) is not None


def pod_spec() -> schemas.Struct:
    pod = schemas.struct_of("v1", "Pod")
    assert pod is not None
    return pod.fields["spec"].type.struct


def test_lists_of_containers_merge_by_name_and_lists_of_ports_are_maps_of_port_and_protocol() -> None:
    containers = pod_spec().fields["containers"]
    assert (containers.strategy, containers.merge_key) == ({"merge"}, "name")
    assert (containers.list_type, containers.keys) == ("m", ("name",))
    ports = containers.type.item.struct.fields["ports"]
    assert ports.merge_key == "containerPort"
    assert ports.keys == ("containerPort", "protocol")
    assert ports.type.item.struct.fields["protocol"].default == "TCP"
    volumes = pod_spec().fields["volumes"]
    assert volumes.strategy == {"merge", "retainKeys"}


def test_omitted_fields_and_zeros() -> None:
    container = pod_spec().fields["containers"].type.item.struct
    assert container.fields["name"].always
    assert not container.fields["image"].always
    assert container.zero == {"name": "", "resources": {}}


def test_ranges_of_integers() -> None:
    port = pod_spec().fields["containers"].type.item.struct.fields["ports"].type.item.struct.fields["containerPort"]
    assert (port.type.minimum, port.type.maximum, port.type.go_name) == (-(2**31), 2**31 - 1, "int32")


def test_protobuf_numbers() -> None:
    pod = schemas.struct_of("v1", "Pod")
    assert pod is not None
    assert {number: field.name for number, field in pod.by_number.items()} == {1: "metadata", 2: "spec", 3: "status"}
