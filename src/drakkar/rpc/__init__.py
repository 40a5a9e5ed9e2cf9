"""gRPC over unix sockets for asyncio: what kubelet, plugins and their clients say to each other.

The wire is gRPC over HTTP/2 (RFC 9113, header compression RFC 7541) without TLS, as on every socket of a kubelet. One
thread, one event loop, nothing compiled: a call costs a fifth of what a server with threads of its own costs, and a
driver process is 14 MB smaller. Why this is not a library: docs/decisions/grpc-of-our-own.md.
"""

from drakkar.rpc.client import Channel
from drakkar.rpc.server import Handler, Identity, Server, identity, served_here
from drakkar.rpc.status import Code, RpcError

__all__ = ["Channel", "Code", "Handler", "Identity", "RpcError", "Server", "identity", "served_here"]
