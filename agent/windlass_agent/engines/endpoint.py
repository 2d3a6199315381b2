"""Addresses of engines: `unix:///path` or `http://host:port`."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

# sockaddr_un holds 108 bytes with the final NUL (unix(7)); 104 on macOS.
MAX_SOCKET_PATH = 103


@dataclass(frozen=True)
class SocketAddress:
    """A parsed address: either a socket path, or a host and a port."""

    uds: Path | None = None
    host: str = ""
    port: int = 0

    @property
    def flags(self) -> list[str]:
        """The arguments of an engine that listens here; all kinds spell them alike."""
        if self.uds:
            return [f"--uds={self.uds}"]
        return [f"--host={self.host}", f"--port={self.port}"]

    @property
    def base_url(self) -> str:
        """The prefix of a route; the host of a socket is a placeholder."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return "http://engine" if self.uds else f"http://{host}:{self.port}"


def parse_endpoint(address: str) -> SocketAddress:
    """Parses an engine's address; raises ValueError with the reason."""
    parts = urlsplit(address)
    if parts.scheme == "unix":
        path = Path(parts.path)
        if parts.netloc or not path.is_absolute():
            raise ValueError(f"{address!r}: a socket path must be absolute (unix:///path)")
        if len(str(path).encode()) > MAX_SOCKET_PATH:
            raise ValueError(f"{address!r}: a socket path holds at most {MAX_SOCKET_PATH} bytes")
        return SocketAddress(uds=path)
    if parts.scheme == "http" and parts.hostname and parts.port:
        return SocketAddress(host=parts.hostname, port=parts.port)
    raise ValueError(f"{address!r} is neither unix:///path nor http://host:port")
