"""The port: TLS, HTTP/1.1 and websockets in front of `ApiServer`.

A protocol of our own on httptools (the C parser that uvicorn uses as well): it saves a fifth of a second of imports at
the start and half of the time per request; `docs/decisions/http-server.md` has the figures.
"""

from drakkar.cluster.apiserver.serving.listener import Listener, serve

__all__ = ["Listener", "serve"]
