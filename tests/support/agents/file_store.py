"""A folder of versions behind HTTP, as an object store's signed URLs show them to an agent."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from windlass.api.models.v1 import models_pb2

# A folder of versions, and its URL.
Store = tuple[Path, str]


@contextmanager
def file_store(root: Path, *, host: str = "127.0.0.1") -> Iterator[Store]:
    """Serves the folders of `root` at this machine's `host`."""
    server = ThreadingHTTPServer((host, 0), partial(_Quiet, directory=str(root)))
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield root, f"http://{host}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        return


def files(store: Store, version: str) -> list[models_pb2.FileUrl]:
    """The files of a version, as an agent is told of them."""
    root, url = store
    return [
        models_pb2.FileUrl(
            path=path.name,
            url=f"{url}/{version}/{path.name}",
            bytes=path.stat().st_size,
            sha256=hashlib.sha256(path.read_bytes()).digest(),
        )
        for path in sorted((root / version).iterdir())
    ]
