"""Admission and conversion webhooks of a recorded conversation: a server on loopback that answers as the file says.

    webhooks:
      /deny: {response: {allowed: false}}          # an AdmissionReview with this response, uid and version filled in
      /label: {patch: [{op: add, path: …}]}        # allowed, with this JSON patch
      /broken: {status: 500, body: no}             # any other answer, as it is
      /late: {delay: 3}                            # seconds before an answer that allows

In requests and answers `https://webhook.test` stands for the server and `V0VCSE9PSyBDQQ==` for its authority. A step
with `reviews` compares what the server was asked meanwhile; parallel questions are told apart by their path.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HOST = "https://webhook.test"
AUTHORITY = base64.b64encode(b"WEBHOOK CA").decode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, behaviours, certificate, key):
        self.behaviours, self.heard, self.guard = behaviours, [], threading.Lock()
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(certificate, key)
        super().__init__(("127.0.0.1", 0), _Request)

    def finish_request(self, request, client_address):
        request.settimeout(60)
        try:
            request = self.tls.wrap_socket(request, server_side=True)
        except OSError:
            return
        super().finish_request(request, client_address)

    def handle_error(self, request, client_address):
        """A peer that went away is none of our errors."""


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, _, query = self.path.partition("?")
        review = json.loads(body)
        with self.server.guard:
            self.server.heard.append({"path": path, "query": query, "body": review})
        behaviour = self.server.behaviours.get(path, {"status": 404, "body": "nothing here"})
        time.sleep(behaviour.get("delay", 0))
        status, answer = behaviour.get("status", 200), behaviour.get("body")
        if answer is None:
            answer = _answer(review, behaviour)
        data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", behaviour.get("contentType", "application/json"))
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format, *args):
        """Nothing."""


def _answer(review, behaviour):
    request = review.get("request") or {}
    response = {"uid": request.get("uid")}
    if review.get("kind") == "ConversionReview":
        return {**review, "response": {**response, **_converted(request, behaviour)}}
    response |= {"allowed": True, **behaviour.get("response", {})}
    if "patch" in behaviour:
        patch = base64.b64encode(json.dumps(behaviour["patch"]).encode()).decode()
        response |= {"patchType": "JSONPatch", "patch": patch}
    return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}


def _converted(request, behaviour):
    """Objects in the wanted version; `rename` is {version: {field: field}}, the names of fields of spec there."""
    if "result" in behaviour:
        return behaviour
    names = behaviour.get("rename", {})
    made = []
    for one in request["objects"]:
        back = {name: plain for plain, name in names.get(one["apiVersion"], {}).items()}
        there = names.get(request["desiredAPIVersion"], {})
        spec = {back.get(name, name): value for name, value in (one.get("spec") or {}).items()}
        spec = {there.get(name, name): value for name, value in spec.items()}
        made.append({**one, "apiVersion": request["desiredAPIVersion"], **({"spec": spec} if "spec" in one else {})})
    return {"convertedObjects": made, "result": {"status": "Success"}}


class Webhooks:
    """The server of one conversation; a context manager. `certificate`, `key` and `authority` are PEM files."""

    def __init__(self, behaviours, certificate, key, authority):
        self._server = _Server(behaviours, certificate, key)
        self._names = (
            (HOST, f"https://127.0.0.1:{self._server.server_address[1]}"),
            (AUTHORITY, base64.b64encode(Path(authority).read_bytes()).decode()),
        )

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def send(self, client, request, timeout=60):
        """What `client` answers, with the names that files use on both sides."""
        return self.recorded(client.send(self.actual(request), timeout))

    def actual(self, value):
        """A request with this server's address in it."""
        return self._renamed(value, 0, 1)

    def recorded(self, value):
        """An answer with the names that files use."""
        return self._renamed(value, 1, 0)

    def _renamed(self, value, old, new):
        text = json.dumps(value)
        for pair in self._names:
            text = text.replace(pair[old], pair[new])
        return json.loads(text)

    def reviews(self):
        """What was asked since the last call, by path."""
        with self._server.guard:
            heard, self._server.heard = self._server.heard, []
        for one in heard:
            extra = one["body"].get("request", {}).get("userInfo", {}).get("extra", {})
            extra.pop("authentication.kubernetes.io/credential-id", None)  # of a token or of a certificate
            if not extra:
                one["body"].get("request", {}).get("userInfo", {}).pop("extra", None)
        return sorted(self.recorded(heard), key=lambda one: one["path"])


class Through:
    """A client whose requests and answers have the names that files use for the webhooks' server."""

    def __init__(self, client, webhooks):
        self._client, self.webhooks = client, webhooks

    def send(self, request, timeout=60):
        return self.webhooks.send(self._client, request, timeout)
