"""Models: importing a folder as a base model."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from windlass import modelfiles
from windlass.client.errors import ConnectionFailed, raise_for, translated
from windlass.client.resources.files import PIECE, Progress, ignore
from windlass.client.transport.session import Session
from windlass.client.transport.urls import at

# The complete list of what a server takes; the rest of a folder (pickles, code) is not sent.
SUFFIXES = {".safetensors", ".gguf", ".json", ".txt", ".model", ".jinja", ".tiktoken", ".md"}
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
        chat_template: str = "",
        for_everyone: bool = False,
        progress: Progress = ignore,
    ) -> dict[str, Any]:
        """Uploads a model folder in Hugging Face's layout and answers the model.

        Only safetensors and what describes them is sent; `chat_template`, a file or one of
        `modelfiles.NAMED`, goes with it. Raises ValueError, before anything is
        digested, when the folder holds no such model, or one that is incomplete or damaged.
        """
        files = model_files(folder, chat_template)
        modelfiles.check_files(files)
        return self.upload(
            name, files, manifest(files), for_everyone=for_everyone, progress=progress
        )

    def upload(
        self,
        name: str,
        files: Mapping[str, Path],
        manifest: Manifest,
        *,
        for_everyone: bool = False,
        progress: Progress = ignore,
    ) -> dict[str, Any]:
        """Uploads files as their `manifest` promises them and answers the model."""
        return self.complete(
            self.send(name, files, manifest, for_everyone=for_everyone, progress=progress)
        )

    def send(
        self,
        name: str,
        files: Mapping[str, Path],
        manifest: Manifest,
        *,
        for_everyone: bool = False,
        progress: Progress = ignore,
    ) -> str:
        """Uploads files and answers the id of the import, which `complete` makes a model."""
        body = {"id": name, "files": manifest, "global": for_everyone}
        started = self._client.post("/v1/models/imports", body)
        for upload in started["uploads"]:
            # Only what was offered: a server may not ask for other files of this machine.
            if upload["path"] not in files:
                raise ConnectionFailed("The server asks for a file that the model does not have.")
            self._put(files[upload["path"]], upload["url"], progress)
        return str(started["import_id"])

    def complete(self, import_id: str) -> dict[str, Any]:
        """Has the server check what was sent, byte for byte, and answers the model."""
        path = at("/v1/models/imports", import_id, "complete")
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


def manifest(files: Mapping[str, Path], progress: Progress = ignore) -> Manifest:
    """Path, size and digest of every file."""
    return [
        {"path": name, "bytes": path.stat().st_size, "sha256": digest(path, progress)}
        for name, path in files.items()
    ]


def model_files(folder: Path, chat_template: str = "") -> dict[str, Path]:
    """The files of a model folder that are sent, by their paths within the model.

    Nothing hidden is. A chat template, by its name or file, takes the place of the folder's;
    `preset` stands for the one of the model's preset, where the folder has none.
    A GGUF file is where there are no safetensors. Raises ValueError when it is no folder, or holds
    no config.json or no weights.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder")
    # Within a model a path has forward slashes.
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    files = {
        name: path
        for name, path in found.items()
        if path.suffix in SUFFIXES
        and not any(part.startswith((".", "__")) for part in name.split("/"))
        and path.is_file()
    }
    if "config.json" not in files:
        raise ValueError(
            f"{folder} holds no config.json: the folder of a model has one, as saved by "
            "Hugging Face Transformers"
        )
    if any(map(modelfiles.is_safetensors, files)):
        files = {name: path for name, path in files.items() if not modelfiles.is_gguf(name)}
    if not any(map(modelfiles.is_weights, files)):
        raise ValueError(f"{folder} holds no .safetensors: pickled weights are not accepted")
    template = modelfiles.given_template(files, chat_template) if chat_template else None
    if template:
        files[modelfiles.CHAT_TEMPLATE] = template
    return files


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
