"""The HTTP side of a replay: one request, one answer, and who asks."""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
import urllib.parse


class Client:
    """HTTP to one server. Identities are the credentials of the command line, impersonation, a token, or nobody."""

    def __init__(self, args):
        self.url = urllib.parse.urlsplit(args.server)
        self.token = args.token
        self.args = args
        self.contexts = {}

    def context(self, with_cert):
        if self.url.scheme != "https":
            return None
        if with_cert not in self.contexts:
            ctx = (
                ssl.create_default_context(cafile=self.args.cacert)
                if self.args.cacert
                else ssl.create_default_context()
            )
            if self.args.insecure or not self.args.cacert:
                ctx.check_hostname = False
                ctx.verify_mode = ssl.CERT_NONE
            if with_cert and self.args.cert:
                ctx.load_cert_chain(self.args.cert, self.args.key)
            self.contexts[with_cert] = ctx
        return self.contexts[with_cert]

    def connect(self, with_cert, timeout):
        host, port = self.url.hostname, self.url.port
        if self.url.scheme == "https":
            return http.client.HTTPSConnection(host, port or 443, timeout=timeout, context=self.context(with_cert))
        return http.client.HTTPConnection(host, port or 80, timeout=timeout)

    def prepare(self, request):
        headers = dict(request.get("headers") or {})
        identity = request.get("as")
        with_cert = True
        extra = []
        if identity == "anonymous":
            with_cert = False
        elif isinstance(identity, dict) and "token" in identity:
            with_cert = False
            headers["Authorization"] = f"Bearer {identity['token']}"
        else:
            if self.token:
                headers["Authorization"] = f"Bearer {self.token}"
            if isinstance(identity, dict):
                extra.append(("Impersonate-User", identity["user"]))
                extra += [("Impersonate-Group", g) for g in identity.get("groups", [])]
                for key, values in identity.get("extra", {}).items():
                    extra += [(f"Impersonate-Extra-{urllib.parse.quote(key, safe='')}", v) for v in values]
        if "bodyBase64" in request:
            payload = base64.b64decode(request["bodyBase64"])
        elif "body" not in request:
            payload = None
        elif isinstance(request["body"], str):
            payload = request["body"].encode()
        else:
            payload = json.dumps(request["body"], separators=(",", ":"), ensure_ascii=False).encode()
        if payload is not None and "Content-Type" not in headers:
            headers["Content-Type"] = "application/json"
        return payload, headers, extra, with_cert

    def send(self, request, timeout=60):
        """Returns {status, contentType, body | events, warnings, retryAfter}."""
        payload, headers, extra, with_cert = self.prepare(request)
        conn = self.connect(with_cert, timeout)
        try:
            conn.putrequest(request["method"], request["path"], skip_accept_encoding=True)
            for k, v in list(headers.items()) + extra:
                conn.putheader(k, v)
            if payload is not None:
                conn.putheader("Content-Length", str(len(payload)))
            conn.endheaders(payload)
            response = conn.getresponse()
            raw = response.read()
        finally:
            conn.close()
        content_type = response.headers.get("Content-Type", "")
        out = {"status": response.status, "contentType": content_type}
        warnings = [
            re.sub(r'^299 \S+ "(.*)"$', r"\1", w).replace('\\"', '"').replace("\\\\", "\\")
            for w in response.headers.get_all("Warning") or []
        ]
        if warnings:
            out["warnings"] = warnings
        if response.headers.get("Retry-After"):
            out["retryAfter"] = response.headers["Retry-After"]
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(request["path"]).query)
        watching = query.get("watch", [""])[0] in ("true", "1") and request["method"] == "GET"
        if not raw:
            if watching and response.status == 200:
                out["events"] = []
            return out
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            out["body"] = "<binary>"
            return out
        if watching and response.status == 200 and "json" in content_type:
            lines = [json.loads(line) for line in text.splitlines() if line.strip()]
            if all(set(line) == {"type", "object"} for line in lines):
                out["events"] = lines
                return out
        if "json" in content_type or text.startswith("{"):
            try:
                out["body"] = json.loads(text)
                return out
            except ValueError:
                pass
        out["body"] = "<binary>" if "\0" in text or "protobuf" in content_type else text
        return out
