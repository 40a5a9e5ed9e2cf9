"""Field validation (KEP-2885), and type errors in the words of Kubernetes' decoders."""

import pytest

from drakkar.cluster.machinery.kinds import DecodeError, kind_of

POD = kind_of("", "v1", "Pod")
assert POD is not None


def refusal(body: str, mode: str = "Strict", media: str = "application/json") -> str:
    assert POD is not None
    with pytest.raises(DecodeError) as caught:
        POD.decode(body.encode(), media, mode)
    assert caught.value.status()["code"] == caught.value.code
    return caught.value.message


UNKNOWN = '{"metadata":{"name":"p","nmae":"x"},"spec":{"containers":[{"name":"a","imagee":"b"}]}}'


def test_strict_refuses_unknown_fields_with_their_paths() -> None:
    assert refusal(UNKNOWN) == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "metadata.nmae", '
        'unknown field "spec.containers[0].imagee"'
    )


def test_warn_accepts_and_says_so_and_ignore_says_nothing() -> None:
    assert POD is not None
    warned = POD.decode(UNKNOWN.encode(), "application/json", "Warn")
    assert warned.warnings == ['unknown field "metadata.nmae"', 'unknown field "spec.containers[0].imagee"']
    assert warned.object["spec"]["containers"] == [{"name": "a", "resources": {}}]
    assert POD.decode(UNKNOWN.encode(), "application/json", "Ignore").warnings == []


def test_duplicates() -> None:
    body = '{"metadata":{"name":"p"},"spec":{},"spec":{"nodeName":"n"}}'
    assert refusal(body).endswith('strict decoding error: duplicate field "spec"')
    yaml = "metadata: {name: p}\nspec: {}\nspec: {nodeName: m}\n"
    assert refusal(yaml, media="application/yaml").endswith(
        'strict decoding error: yaml: unmarshal errors:\n  line 3: key "spec" already set in map'
    )


def test_complaints_come_in_the_order_of_the_document() -> None:
    body = '{"x":1,"metadata":{"name":"p","name":"q"},"spec":{"y":{"a":1,"a":2},"hostname":"a","hostname":"b","z":1}}'
    assert refusal(body).endswith(
        'strict decoding error: unknown field "x", duplicate field "metadata.name", unknown field "spec.y", '
        'duplicate field "spec.hostname", unknown field "spec.z"'
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            '{"spec":{"containers":{}}}',
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            '{"spec":{"containers":[{"name":7}]}}',
            "json: cannot unmarshal number into Go struct field Container.spec.containers.name of type string",
        ),
        (
            '{"spec":{"hostNetwork":"yes"}}',
            "json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool",
        ),
        (
            '{"spec":{"priority":3000000000}}',
            "json: cannot unmarshal number 3000000000 into Go struct field PodSpec.spec.priority of type int32",
        ),
    ],
)
def test_type_errors(body: str, words: str) -> None:
    assert refusal(body, "Ignore") == f'Pod in version "v1" cannot be handled as a Pod: {words}'


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            '{"apiVersion":"v1","kind":"Node"}',
            'Node in version "v1" cannot be handled as a Pod: converting (v1.Node) to (core.Pod): unknown conversion',
        ),
        (
            '{"apiVersion":"v2"}',
            'Pod in version "v2" cannot be handled as a Pod: no kind "Pod" is registered for version "v2" in scheme '
            '"pkg/runtime/scheme.go:111"',
        ),
        ("[]", "the object provided is unrecognized (must be of type Pod): "),
        (
            "{",
            "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: "
            "unexpected end of JSON input ({)",
        ),
    ],
)
def test_what_is_no_pod_is_refused(body: str, words: str) -> None:
    assert refusal(body).startswith(words)


def test_unknown_media_types_get_415() -> None:
    assert POD is not None
    with pytest.raises(DecodeError) as caught:
        POD.decode(b"{}", "text/plain")
    assert (caught.value.code, caught.value.reason) == (415, "UnsupportedMediaType")


def test_long_bodies_are_cut_in_the_message() -> None:
    assert len(refusal("[" + "1," * 10_000 + "1]")) < 400
