"""The HTTP listener: connections within bounds, requests as ASGI.

May import the kernel and the gateway's errors.
"""

from windlass.core.addresses import ClientAddresses
from windlass.gateway.listener.server import HttpServer

__all__ = ["ClientAddresses", "HttpServer"]
