"""A fake of Hugging Face's Hub, which tests cannot reach: folders are its repositories.

It speaks what huggingface_hub 1.24 and 2.4 were seen to ask for a snapshot: who bears a token, a
repository's commit, its files, and each file. A gated repository answers as the Hub does.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import orjson

COMMIT = "5" * 40


@dataclass
class Hub:
    """Contents of the fake hub; `url` is for HF_ENDPOINT."""

    url: str
    # Folders by kind and repository: ("models", "acme/small").
    repositories: dict[tuple[str, str], Path]
    # The tokens that open a repository; one that is not here is open to all.
    gates: dict[str, str] = field(default_factory=dict)
    # Files that were given away: repository and path.
    given: list[tuple[str, str]] = field(default_factory=list)
    # Paths that are not given away before their event is set.
    held: dict[str, Event] = field(default_factory=dict)
    # Paths of which other bytes are given away than are promised.
    lies: set[str] = field(default_factory=set)
    # Whether it answers nothing but 503.
    down: bool = False


@contextmanager
def running(
    host: str, repositories: dict[tuple[str, str], Path], gates: dict[str, str] | None = None
) -> Iterator[Hub]:
    """Serves at an address of this machine until the end of the block."""
    with _Server((host, 0), _Request) as server:
        hub = Hub(f"http://{host}:{server.server_address[1]}", repositories, gates or {})
        server.hub = hub
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    hub: Hub


class _Request(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *_: Any) -> None:
        """Logs nothing."""

    @property
    def hub(self) -> Hub:
        return self.server.hub

    @property
    def token(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def _answer(self) -> None:
        match unquote(urlsplit(self.path).path).strip("/").split("/"):
            case _ if self.hub.down:
                self._say(503, {"error": "Unavailable"})
            case ["api", "whoami-v2"]:
                self._whoami()
            case ["api", kind, user, name, "revision", _]:
                self._within(kind, f"{user}/{name}", None)
            case ["api", kind, user, name, "tree", _, *path]:
                self._within(kind, f"{user}/{name}", "/".join(path), listed=True)
            case ["datasets", user, name, "resolve", _, *path]:
                self._within("datasets", f"{user}/{name}", "/".join(path))
            case [user, name, "resolve", _, *path]:
                self._within("models", f"{user}/{name}", "/".join(path))
            case _:
                self._say(404, {"error": "Not found"})

    def _whoami(self) -> None:
        if self.token not in self.hub.gates.values():
            return self._say(401, {"error": "Invalid credentials in Authorization header"})
        access = {"displayName": "test", "role": "read"}
        return self._say(200, {"name": "tester", "auth": {"accessToken": access}})

    def _within(self, kind: str, name: str, path: str | None, *, listed: bool = False) -> None:
        """The repository itself for None, what lies in a folder if `listed`, or one file."""
        folder = self.hub.repositories.get((kind, name))
        if folder is None:
            return self._say(404, {"error": "Repository not found"}, code="RepoNotFound")
        if self.hub.gates.get(name, self.token) != self.token:
            return self._say(401, {"error": f"Access to {name} is restricted"}, code="GatedRepo")
        if path is None:
            return self._say(200, {"id": name, "sha": COMMIT})
        if listed:
            query = parse_qs(urlsplit(self.path).query)
            deep = query.get("recursive", [""])[0].lower() in ("true", "1")
            inner = (folder / path).rglob("*") if deep else (folder / path).iterdir()
            return self._say(
                200, [_entry(str(one.relative_to(folder)), one) for one in sorted(inner)]
            )
        files = {str(one.relative_to(folder)): one for one in folder.rglob("*") if one.is_file()}
        if path not in files:
            return self._say(404, {"error": "Entry not found"}, code="EntryNotFound")
        if path in self.hub.held:
            self.hub.held[path].wait()
        if self.command == "GET":
            self.hub.given.append((name, path))
        content = files[path].read_bytes()
        given = content[::-1] + b"!" if path in self.hub.lies else content
        return self._send(200, given, etag=_digest(files[path]))

    def _say(self, status: int, content: Any, *, code: str = "") -> None:
        self._send(status, orjson.dumps(content), code=code)

    def _send(self, status: int, content: bytes, *, code: str = "", etag: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Repo-Commit", COMMIT)
        if code:
            self.send_header("X-Error-Code", code)
        if etag:
            self.send_header("ETag", f'"{etag}"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


def _entry(path: str, file: Path) -> dict[str, Any]:
    if file.is_dir():
        return {"type": "directory", "path": path, "size": 0, "oid": path}
    size = file.stat().st_size
    entry = {"type": "file", "path": path, "size": size, "oid": _digest(file)}
    if path.endswith(".safetensors"):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        entry["lfs"] = {"oid": digest, "size": size, "pointerSize": 134}
    return entry


def _digest(file: Path) -> str:
    # As git counts; what it is, no client checks.
    return hashlib.sha1(file.read_bytes(), usedforsecurity=False).hexdigest()
