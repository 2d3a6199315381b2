"""Files: uploads with progress, downloads without holding them in memory."""

import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from windlass.client.errors import decoded, raise_for, translated
from windlass.client.transport.session import Session
from windlass.client.transport.urls import at

# Called with the number of bytes that went over the wire since the last call.
Progress = Callable[[int], None]
PIECE = 256 * 1024


def ignore(_bytes: int) -> None:
    """No progress wanted."""


class Files:
    """Files as in openai-python, with progress."""

    def __init__(self, client: Session):
        self._client = client

    def upload(
        self,
        path: Path,
        *,
        purpose: str = "fine-tune",
        expires_after: int = 0,
        provenance: Mapping[str, object] | None = None,
        progress: Progress = ignore,
    ) -> dict[str, Any]:
        """Uploads a file and answers its object.

        `expires_after` is in seconds; `provenance` says what the file was converted from, by the
        fields of the file object. Raises OSError when the file cannot be read.
        """
        fields = {"purpose": purpose}
        if expires_after:
            fields["expires_after[anchor]"] = "created_at"
            fields["expires_after[seconds]"] = str(expires_after)
        for name, value in (provenance or {}).items():
            fields[f"windlass[provenance][{name}]"] = str(value)
        boundary = secrets.token_hex(16)
        head, tail = _envelope(fields, path.name, boundary)
        size = path.stat().st_size
        with translated():
            response = self._client.http.post(
                "/v1/files",
                content=_body(path, head, tail, progress),
                headers={
                    "Content-Type": f"multipart/form-data; boundary={boundary}",
                    "Content-Length": str(len(head) + size + len(tail)),
                },
                timeout=600,
            )
        raise_for(response)
        answer: dict[str, Any] = decoded(response)
        return answer

    def download(self, file_id: str, path: Path, *, progress: Progress = ignore) -> None:
        """Writes a file's content to `path`, whole or not at all."""
        partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        try:
            with partial.open("xb") as file:
                for piece in self.content(file_id):
                    file.write(piece)
                    progress(len(piece))
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    def content(self, file_id: str) -> Iterator[bytes]:
        """A file's content, piece by piece."""
        with self._client.stream(at("/v1/files", file_id, "content")) as response:
            yield from response.iter_bytes(PIECE)


def _envelope(fields: dict[str, str], filename: str, boundary: str) -> tuple[bytes, bytes]:
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    ]
    quoted = filename.replace("\\", "%5C").replace('"', "%22").replace("\r", "").replace("\n", "")
    parts.append(
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{quoted}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    return "".join(parts).encode(), f"\r\n--{boundary}--\r\n".encode()


def _body(path: Path, head: bytes, tail: bytes, progress: Progress) -> Iterator[bytes]:
    yield head
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece
            progress(len(piece))
    yield tail
