"""Reviews as an API server asks for them, by function and over TLS."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from typing import Any

import pytest

from drakkar.cli.webhooks import serving
from drakkar.cluster import pki
from drakkar.errors import DrakkarError
from drakkar.kube import yamltext
from drakkar.migration.lint import Context
from drakkar.migration.webhook import answer
from tests.migration.worlds import pod

HERE = [Context("1.36")]


def review(text: str, **more: Any) -> bytes:
    request = {"uid": "u-1", "operation": "CREATE", "namespace": "ml", "object": yamltext.load(text), **more}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def response(text: str, deny: str = "", **more: Any) -> dict[str, Any]:
    made = answer(review(text, **more), HERE, deny=deny)
    assert made["kind"] == "AdmissionReview"
    found = made["response"]
    assert found["uid"] == "u-1"
    return dict(found)


def test_a_mistake_is_a_warning() -> None:
    found = response(pod("nodeName: n1"))
    assert found["allowed"] is True
    [warning] = found["warnings"]
    assert warning.startswith("spec.nodeName: nodeName bypasses the scheduler")


def test_from_a_severity_on_objects_are_refused() -> None:
    found = response(pod("nodeName: n1"), deny="error")
    assert found["allowed"] is False
    assert "[node-name-with-claim]" in found["status"]["message"]
    assert "warnings" not in found
    assert response(pod("runtimeClassName: nvidia"), deny="error")["allowed"] is True
    assert response(pod("runtimeClassName: nvidia"), deny="warning")["allowed"] is False


def test_what_is_right_passes_in_silence() -> None:
    assert response(pod("")) == {"uid": "u-1", "allowed": True}


def test_deletions_have_no_object() -> None:
    assert response(pod(""), object=None, operation="DELETE") == {"uid": "u-1", "allowed": True}


def test_an_annotation_with_a_reason_switches_a_finding_off() -> None:
    value = yamltext.load(pod("nodeName: n1"))
    value["metadata"]["annotations"] = {"drakkar.dev/lint-ignore": "node-name-with-claim the node is empty"}
    assert response(json.dumps(value), deny="error")["allowed"] is True
    value["metadata"]["annotations"] = {"drakkar.dev/lint-ignore": "node-name-with-claim"}
    assert response(json.dumps(value), deny="error")["allowed"] is False


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"request": {"uid": 1}}',
        b'{"apiVersion": "admission.k8s.io/v1beta1", "request": {"uid": "u"}}',
    ],
)
def test_what_is_no_review_is_one_sentence(body: bytes) -> None:
    with pytest.raises(DrakkarError, match="no AdmissionReview"):
        answer(body, HERE)


def test_over_tls(tmp_path: Path) -> None:
    keys = pki.prepare(tmp_path).wait()
    with serving(("127.0.0.1", 0), lambda body: answer(body, HERE, deny="error"), keys.certificate, keys.key) as port:
        trust = ssl.create_default_context(cafile=str(keys.authority))
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=trust, timeout=20)
        for _ in range(2):  # the connection is kept
            connection.request("POST", "/validate?timeout=10s", review(pod("nodeName: n1")))
            got = connection.getresponse()
            assert got.status == 200
            assert json.loads(got.read())["response"]["allowed"] is False
        connection.request("GET", "/readyz")
        assert connection.getresponse().read() == b'{"status": "ok"}'
        connection.request("POST", "/validate", b"nonsense")
        got = connection.getresponse()
        assert (got.status, "no AdmissionReview" in got.read().decode()) == (400, True)
        connection.close()


def test_a_certificate_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("nothing")
    with (
        pytest.raises(DrakkarError, match="cannot use the certificate"),
        serving(("127.0.0.1", 0), lambda body: {}, tmp_path / "x", tmp_path / "x"),
    ):
        pass
