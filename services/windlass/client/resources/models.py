"""Models: importing a folder as a base model."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from windlass.client.errors import ConnectionFailed, raise_for, translated
from windlass.client.resources.files import PIECE, Progress, ignore
from windlass.client.transport.session import Session
from windlass.client.transport.urls import at

# What a model folder may hold besides the model, and what is not sent.
SKIPPED = {".git", ".cache", "__pycache__", ".gitattributes", ".DS_Store"}
# The complete list of what a server takes; the rest of a folder (pickles, code) is not sent.
SUFFIXES = {".safetensors", ".json", ".txt", ".model", ".jinja", ".tiktoken", ".md"}
# The server reads and digests every byte once more.
CHECK_SECONDS = 3600.0

Manifest = list[dict[str, Any]]


class Models:
    """Imports."""

    def __init__(self, client: Session):
        self._client = client

    def import_folder(
        self,
        name: str,
        folder: Path,
        *,
        for_everyone: bool = False,
        progress: Progress = ignore,
    ) -> dict[str, Any]:
        """Uploads a model folder in Hugging Face's layout and answers the model.

        Only safetensors and what describes them is sent. Raises ValueError when
        the folder holds no such model.
        """
        return self.upload(
            name, folder, manifest(folder), for_everyone=for_everyone, progress=progress
        )

    def upload(
        self,
        name: str,
        folder: Path,
        files: Manifest,
        *,
        for_everyone: bool = False,
        progress: Progress = ignore,
    ) -> dict[str, Any]:
        """Uploads the files of `manifest(folder)` and answers the model."""
        body = {"id": name, "files": files, "global": for_everyone}
        started = self._client.post("/v1/models/imports", body)
        offered = {file["path"] for file in files}
        for upload in started["uploads"]:
            # Only what was offered: a server may not ask for other files of this machine.
            if upload["path"] not in offered:
                raise ConnectionFailed("The server asks for a file that the model does not have.")
            self._put(folder / upload["path"], upload["url"], progress)
        path = at("/v1/models/imports", started["import_id"], "complete")
        answer: dict[str, Any] = self._client.request("POST", path, json={}, timeout=CHECK_SECONDS)
        return answer

    def _put(self, path: Path, url: str, progress: Progress) -> None:
        # A bare request: the URL is its own authority, and the key is none of the store's business.
        with translated():
            response = httpx.put(
                url,
                content=_pieces(path, progress),
                headers={"Content-Length": str(path.stat().st_size)},
                timeout=600,
                verify=self._client.trust(url),
            )
        raise_for(response)


def manifest(folder: Path, progress: Progress = ignore) -> Manifest:
    """Path, size and digest of every file that is sent; raises ValueError as `model_files` does."""
    return [
        {
            "path": name_of(path, folder),
            "bytes": path.stat().st_size,
            "sha256": digest(path, progress),
        }
        for path in model_files(folder)
    ]


def model_files(folder: Path) -> list[Path]:
    """The files of a model folder that are sent, sorted.

    Raises ValueError when it is no folder, or holds no config.json or no safetensors.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder")
    found = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and path.suffix in SUFFIXES
        and SKIPPED.isdisjoint(path.relative_to(folder).parts)
    )
    if folder / "config.json" not in found:
        raise ValueError(
            f"{folder} holds no config.json: the folder of a model has one, as saved by "
            "Hugging Face Transformers"
        )
    if not any(path.suffix == ".safetensors" for path in found):
        raise ValueError(f"{folder} holds no .safetensors: pickled weights are not accepted")
    return found


def name_of(path: Path, folder: Path) -> str:
    """The path of a file within its model, with forward slashes."""
    return path.relative_to(folder).as_posix()


def digest(path: Path, progress: Progress = ignore) -> str:
    """SHA-256 of a file, in hex."""
    found = hashlib.sha256()
    for piece in _pieces(path, progress):
        found.update(piece)
    return found.hexdigest()


def _pieces(path: Path, progress: Progress) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece
            progress(len(piece))
