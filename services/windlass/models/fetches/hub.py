"""Hugging Face's Hub, as far as a model is fetched from it: its files at a commit, and each file.

The API is the one that huggingface_hub speaks (`hf_api.py`: model_info, list_repo_tree;
`file_download.py`: hf_hub_url).
"""

import os
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from msgspec import Meta, Struct
from yarl import URL

from windlass.bounds import HUB_NAME_LENGTH, REVISION_LENGTH
from windlass.core.errors import InvalidArgument
from windlass.modelfiles import is_data, is_gguf

T = TypeVar("T")
SCHEME = "hf://"
DEFAULT_REVISION = "main"
_NAME = rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{HUB_NAME_LENGTH - 1}}}"
_REPOSITORY = re.compile(f"{_NAME}/{_NAME}")
_REVISION = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._/-]{{0,{REVISION_LENGTH - 1}}}")
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_STEP = re.compile(r"[0-9]{1,2}_[A-Za-z]{1,32}")
_MOST_STEPS = 8
_CHUNK = 2**20
_SILENT_SECONDS = 60.0
_LISTING_BYTES = 8 * 2**20


class HubRefuses(Exception):
    """A repository that cannot be fetched, however often one asks: a code and a sentence."""

    def __init__(self, code: str, message: str):
        super().__init__(message)
        self.code = code
        self.message = message


class HubAway(Exception):
    """The hub does not answer as it should; it may later."""


class HubFile(Struct, frozen=True):
    """A file of a commit; `sha256` in hex where the hub knows it."""

    path: str
    size: int
    sha256: str = ""


@dataclass(frozen=True)
class Snapshot:
    """A repository at a commit: the files that make a model."""

    commit: str
    files: tuple[HubFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


class _Info(Struct):
    sha: str


class _Lfs(Struct):
    oid: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class _Entry(Struct):
    type: str
    path: str
    size: Annotated[int, Meta(ge=0)] = 0
    lfs: _Lfs | None = None


def repository_of(source: str) -> str:
    """`user/name` of `hf://user/name`; raises InvalidArgument."""
    name = source.removeprefix(SCHEME)
    if not source.startswith(SCHEME) or not _REPOSITORY.fullmatch(name) or ".." in name:
        raise InvalidArgument(
            "source must be hf://USER/REPOSITORY, of letters, digits, '.', '_' and '-'.",
            reason="invalid_source",
            param="source",
        )
    return name


def revision_of(text: str) -> str:
    """A branch, tag or commit, `main` for none; raises InvalidArgument."""
    if not text:
        return DEFAULT_REVISION
    if not _REVISION.fullmatch(text) or ".." in text:
        raise InvalidArgument("revision must be a branch, tag or commit.", param="revision")
    return text


class Hub:
    """Reads repositories of models; holds no token."""

    def __init__(self, endpoint: str, session: aiohttp.ClientSession):
        self._endpoint = endpoint.rstrip("/")
        self._session = session

    async def snapshot(self, repository: str, revision: str, token: str) -> Snapshot:
        """The model's files at what the revision is now; raises HubRefuses, HubAway."""
        at = f"{self._endpoint}/api/models/{repository}"
        info = await self._listed(f"{at}/revision/{quote(revision, safe='')}", _Info, token)
        if not _COMMIT.fullmatch(info.sha):
            raise HubAway("the hub does not name a commit")
        tree = f"{at}/tree/{info.sha}"
        entries = await self._listed(tree, list[_Entry], token)
        for one in [one for one in entries if _is_step(one)][:_MOST_STEPS]:
            entries += await self._listed(f"{tree}/{quote(one.path)}", list[_Entry], token)
        return Snapshot(info.sha, model_files(entries))

    async def read(
        self, repository: str, commit: str, path: str, token: str
    ) -> AsyncIterator[bytes]:
        """The bytes of a file; raises HubRefuses, HubAway."""
        url = f"{self._endpoint}/{repository}/resolve/{commit}/{quote(path)}"
        try:
            # Where it leads elsewhere, to a store, aiohttp leaves the token behind.
            async with self._session.get(url, headers=_bearer(token)) as answer:
                await _check(answer, token)
                async for chunk in answer.content.iter_chunked(_CHUNK):
                    yield chunk
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _away(error, url) from error

    async def _listed(self, url: str, kind: type[T], token: str) -> T:
        try:
            async with self._session.get(url, headers=_bearer(token)) as answer:
                await _check(answer, token)
                content = bytearray()
                async for chunk in answer.content.iter_any():
                    content += chunk
                    if len(content) > _LISTING_BYTES:
                        raise HubRefuses("too_many_files", "The repository has too many files.")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _away(error, url) from error
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.MsgspecError as error:
            raise HubAway(f"the hub's answer cannot be read: {error}") from error


def session() -> aiohttp.ClientSession:
    """Patient with large files, not with silence; by the environment's proxy, if it has one."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=_SILENT_SECONDS)
    return aiohttp.ClientSession(
        timeout=timeout, trust_env=True, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
    )


def model_files(entries: "list[_Entry]") -> tuple[HubFile, ...]:
    """Returns the entries that a model is loaded from; raises HubRefuses for none."""
    folders = {one.path for one in entries if _is_step(one)}
    files = {
        one.path: one
        for one in entries
        if one.type == "file" and ("/" not in one.path or one.path.rpartition("/")[0] in folders)
    }
    has_usual = bool({"model.safetensors", "model.safetensors.index.json"} & files.keys())
    chosen = [
        one
        for path, one in sorted(files.items())
        if is_data(path)
        # Repositories of these have many of one model.
        and not is_gguf(path)
        # The same weights once more, in their makers' own layout.
        and not (has_usual and path.startswith("consolidated"))
    ]
    if not any(one.path.endswith(".safetensors") for one in chosen):
        raise HubRefuses(
            "no_safetensors",
            "The repository has no safetensors; weights that are pickled run code when loaded.",
        )
    return tuple(HubFile(one.path, one.size, one.lfs.oid if one.lfs else "") for one in chosen)


def _is_step(entry: "_Entry") -> bool:
    """Returns True for a folder of sentence-transformers, which says how vectors are made."""
    return entry.type == "directory" and bool(_STEP.fullmatch(entry.path))


def _bearer(token: str) -> dict[str, str]:
    # Digests are of what is stored, and so are the bytes that are asked for.
    encoding = {"Accept-Encoding": "identity"}
    return encoding | ({"Authorization": f"Bearer {token}"} if token else {})


async def _check(answer: aiohttp.ClientResponse, token: str) -> None:
    if answer.status == 200:
        return
    if answer.status in (401, 403):
        # The hub also says so of what is not there.
        raise HubRefuses(
            "source_not_permitted",
            "The hub does not let the project's secret 'huggingface' read the repository: ask "
            "for access on its page, or store another token."
            if token
            else "The repository is gated, private or missing. Store a token that may read it "
            "with `windlass secrets put huggingface`.",
        )
    if answer.status == 404:
        said = answer.headers.get("X-Error-Code", "")
        what = {"RevisionNotFound": "revision", "EntryNotFound": "file"}.get(said, "repository")
        raise HubRefuses("source_not_found", f"The hub does not have this {what}.")
    raise HubAway(f"the hub responded with status {answer.status}")


def _away(error: Exception, url: str) -> HubAway:
    """A transport's error, with the hub's address and no other."""
    address = URL(url).origin()
    if isinstance(error, TimeoutError):
        return HubAway(f"{address} did not respond in time")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return HubAway(f"{address} could not be reached: its name cannot be resolved")
    if isinstance(error, aiohttp.ClientConnectorError):
        why = os.strerror(error.errno) if error.errno else type(error.os_error).__name__
        return HubAway(f"{address} could not be reached: {why}")
    return HubAway(f"{address} broke off: {type(error).__name__}")
