"""Webhooks registered in the embedded API server: our own review, services, slow and broken ones.

What Kubernetes answers around webhooks is in the recordings `tests/conformance/http/webhook-*.yaml`; these are the
things that recordings cannot show.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from drakkar.cli.webhooks import serving
from drakkar.kube import yamltext
from drakkar.migration.lint import Context
from drakkar.migration.webhook import answer
from tests.cluster.apiserver.world import CONFIGS, PODS, World, config
from tests.conformance.replay.webhooks import Webhooks
from tests.migration.worlds import pod as claiming

HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


class Certificate:
    """A certificate of its own authority, for the names that webhooks have."""

    def __init__(self, directory: Path) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hook")])
        names = [x509.DNSName("hook.ml.svc"), x509.DNSName("localhost")]
        now = dt.datetime.now(dt.UTC)
        made = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(hours=1))
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        self.pem = made.public_bytes(serialization.Encoding.PEM)
        self.certificate, self.key = directory / "tls.crt", directory / "tls.key"
        self.certificate.write_bytes(self.pem)
        self.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )

    @property
    def bundle(self) -> str:
        return base64.b64encode(self.pem).decode()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def review_port(certificate: Certificate) -> Iterator[int]:
    """`drakkar lint --serve --deny error`."""

    def reviewed(body: bytes) -> dict[str, Any]:
        return answer(body, [Context("1.36")], deny="error")

    with serving(("127.0.0.1", 0), reviewed, certificate.certificate, certificate.key) as port:
        yield port


def hook(certificate: Certificate, client: dict[str, Any], resource: str = "pods", **more: Any) -> dict[str, Any]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": [resource]}
    made = {
        "name": "hook.ml.example.com",
        "clientConfig": {"caBundle": certificate.bundle, **client},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **more,
    }
    return {"metadata": {"name": "hook"}, "webhooks": [made]}


def at(port: int, path: str = "/validate") -> dict[str, Any]:
    return {"url": f"https://localhost:{port}{path}"}


def our_pod(text: str) -> dict[str, Any]:
    made: dict[str, Any] = yamltext.load(claiming(text))
    made["metadata"].pop("namespace", None)
    made["spec"]["automountServiceAccountToken"] = False
    return made


async def closed(world: World) -> None:
    await world.server.close()


def test_our_review_refuses_and_warns_as_a_webhook(certificate: Certificate, review_port: int) -> None:
    async def main() -> None:
        world = World()
        await world.service_account()
        await world.made(HOOKS, hook(certificate, at(review_port)))
        refused = await world.post(PODS, our_pod("nodeName: n1"))
        assert refused.status == 422  # the webhook's own code
        told = refused.body["message"]
        assert told.startswith(
            'admission webhook "hook.ml.example.com" denied the request: drakkar lint: spec.nodeName: nodeName '
        )
        assert "[node-name-with-claim]" in told
        runtime = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
        await world.made("/apis/node.k8s.io/v1/runtimeclasses", runtime)
        warned = await world.post(PODS, our_pod("runtimeClassName: nvidia"))
        texts = warned.headers.get("Warning", "")
        assert "runtimeClassName" in texts, warned.body
        await closed(world)

    asyncio.run(main())


def test_a_service_is_found_where_its_pods_listen(certificate: Certificate, review_port: int) -> None:
    async def main() -> None:
        world = World()
        await world.service_account()
        await world.made("/api/v1/namespaces", {"metadata": {"name": "ml"}})
        service = {"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443, "targetPort": review_port}]}}
        await world.made("/api/v1/namespaces/ml/services", service)
        await world.made(
            HOOKS, hook(certificate, {"service": {"name": "hook", "namespace": "ml", "path": "/validate"}})
        )
        nobody = await world.post(PODS, our_pod("nodeName: n1"))
        assert nobody.status == 500
        assert 'no endpoints available for service "hook"' in nobody.body["message"]
        piece = {
            "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
            "addressType": "IPv4",
            "ports": [{"name": "", "port": review_port}],
            "endpoints": [{"addresses": ["10.1.2.3"], "targetRef": {"kind": "Pod", "name": "h", "namespace": "ml"}}],
        }
        await world.made("/apis/discovery.k8s.io/v1/namespaces/ml/endpointslices", piece)
        refused = await world.post(PODS, our_pod("nodeName: n1"))
        assert refused.status == 422, refused.body
        await closed(world)

    asyncio.run(main())


def test_who_has_another_certificate_is_not_believed(
    certificate: Certificate, review_port: int, tmp_path: Path
) -> None:
    async def main() -> None:
        world = World()
        stranger = hook(Certificate(tmp_path), at(review_port), "configmaps")
        made = await world.made(HOOKS, stranger)
        refused = await world.post(CONFIGS, config("a"))
        assert refused.status == 500
        assert "x509: certificate signed by unknown authority" in refused.body["message"]
        made["webhooks"][0]["failurePolicy"] = "Ignore"
        assert (await world.put(f"{HOOKS}/hook", made)).status == 200
        assert (await world.post(CONFIGS, config("a"))).status == 201
        await closed(world)

    asyncio.run(main())


def test_slow_webhooks_hold_up_only_who_asked_for_them(certificate: Certificate) -> None:
    behaviours = {"/late": {"delay": 1.0}}

    async def main() -> None:
        with Webhooks(behaviours, certificate.certificate, certificate.key, certificate.certificate) as server:
            world = World()
            port = int(server.actual({"a": "https://webhook.test"})["a"].rpartition(":")[2])
            await world.made(HOOKS, hook(certificate, at(port, "/late"), "configmaps"))
            begun = time.monotonic()
            writes = [asyncio.create_task(world.post(CONFIGS, config(f"c{number}"))) for number in range(20)]
            await asyncio.sleep(0.05)
            asked = time.monotonic()
            assert (await world.get(CONFIGS)).status == 200
            secret = {"metadata": {"name": "s"}}
            assert (await world.post("/api/v1/namespaces/default/secrets", secret)).status == 201
            assert time.monotonic() - asked < 0.5
            assert {one.status for one in await asyncio.gather(*writes)} == {201}
            assert time.monotonic() - begun < 10  # not one after the other
            await closed(world)

    asyncio.run(main())


def test_an_update_that_was_overtaken_meanwhile_is_tried_again(certificate: Certificate) -> None:
    behaviours = {"/late": {"delay": 0.3}}

    async def main() -> None:
        with Webhooks(behaviours, certificate.certificate, certificate.key, certificate.certificate) as server:
            world = World()
            port = int(server.actual({"a": "https://webhook.test"})["a"].rpartition(":")[2])
            await world.made(CONFIGS, config("a"))
            await world.made(HOOKS, hook(certificate, at(port, "/late"), "configmaps"))
            patches = [world.merge(f"{CONFIGS}/a", {"data": {f"k{number}": "v"}}) for number in range(4)]
            assert {one.status for one in await asyncio.gather(*patches)} == {200}
            found = (await world.get(f"{CONFIGS}/a")).body
            assert set(found["data"]) == {"k0", "k1", "k2", "k3"}
            made = {**found, "data": {"only": "this"}}
            puts = [world.put(f"{CONFIGS}/a", made) for _ in range(2)]
            assert sorted(one.status for one in await asyncio.gather(*puts)) in ([200, 200], [200, 409])
            await closed(world)

    asyncio.run(main())


@pytest.mark.parametrize(
    "behaviour",
    [
        {"body": "[" * 100_000},
        {"body": "null"},
        {"body": "[]"},
        {"body": {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}},
        {"body": {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": "no"}},
        {"response": {"uid": 7}},
        {"response": {"allowed": "yes"}},
        {"response": {"allowed": False, "status": "no"}},
        {"response": {"allowed": False, "status": {"code": "x", "message": []}}},
        {"response": {"allowed": True, "warnings": [1, None]}},
        {"response": {"allowed": True, "patchType": "JSONPatch", "patch": "%%%"}},
        {"patch": {"not": "a list"}},
        {"patch": [{"op": "replace", "path": "/metadata", "value": 1}]},
        {"patch": [{"op": "replace", "path": "", "value": None}]},
        {"patch": [{"op": "copy", "from": "/data", "path": "/data/x"}] * 40},
        {"patch": [{"op": "remove", "path": "/metadata/name"}]},
        {"status": 302, "body": ""},
        {"status": 999, "body": ""},
        {"body": "x" * (17 * 1024 * 1024)},
    ],
    ids=lambda behaviour: str(behaviour)[:60],
)
def test_whatever_a_webhook_answers_the_server_lives(certificate: Certificate, behaviour: dict[str, Any]) -> None:
    async def main() -> None:
        with Webhooks({"/odd": behaviour}, certificate.certificate, certificate.key, certificate.certificate) as server:
            world = World()
            port = int(server.actual({"a": "https://webhook.test"})["a"].rpartition(":")[2])
            await world.made(MUTATING, hook(certificate, at(port, "/odd"), "configmaps"))
            found = await world.post(CONFIGS, config("a", key="value"))
            assert found.status in (201, 400, 403, 422, 500)
            if found.status != 201:
                assert found.body["kind"] == "Status"
                assert "Error: " not in found.body["message"].partition("webhook")[0]  # no mistake of our own
            assert (await world.get(CONFIGS)).status == 200
            await closed(world)

    asyncio.run(main())
