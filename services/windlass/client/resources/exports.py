"""Exports: archives that may be large, and go on where they were broken off."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from windlass.client.resources.files import PIECE, Progress, ignore
from windlass.client.transport.session import Session
from windlass.client.transport.urls import at


class Exports:
    """Downloads of exports."""

    def __init__(self, client: Session):
        self._client = client

    def download(
        self, export: Mapping[str, Any], path: Path, *, progress: Progress = ignore
    ) -> None:
        """Writes the archive of an export to `path`, once it is whole.

        What came before a failure stays beside it, for the next call to go on from.
        """
        partial = path.with_name(f".{path.name}.{export['id']}.part")
        # Its content is all that the tenant has.
        partial.touch(mode=0o600)
        while (done := partial.stat().st_size) < export["bytes"]:
            headers = {"Range": f"bytes={done}-"}
            content = at("/v1/exports", export["id"], "content")
            with (
                self._client.stream(content, headers=headers) as response,
                partial.open("ab" if response.status_code == 206 else "wb") as file,
            ):
                progress(file.tell())
                for piece in response.iter_bytes(PIECE):
                    file.write(piece)
                    progress(len(piece))
        partial.replace(path)
