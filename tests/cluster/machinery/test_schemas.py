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


def test_lists_of_containers_merge_by_name_and_lists_of_ports_are_maps_of_port_and_protocol() -> None:
    pod = schemas.struct_of("v1", "Pod")
    assert pod is not None
    spec = pod.fields["spec"].type.struct
    containers = spec.fields["containers"]
    assert (containers.patch_strategies, containers.merge_key) == (("merge",), "name")
    assert containers.list_type == "map"
    ports = containers.type.item.struct.fields["ports"]
    assert ports.merge_key == "containerPort"
    assert tuple(ports.list_keys) == ("containerPort", "protocol")
    assert spec.fields["nodeSelector"].atomic


def test_omitted_fields_and_zeros() -> None:
    pod = schemas.struct_of("v1", "Pod")
    assert pod is not None
    container = pod.fields["spec"].type.struct.fields["containers"].type.item.struct
    assert container.fields["name"].always
    assert not container.fields["image"].always


def test_protobuf_numbers() -> None:
    pod = schemas.struct_of("v1", "Pod")
    assert pod is not None
    assert {number: field.name for number, field in pod.by_number.items()} == {1: "metadata", 2: "spec", 3: "status"}
