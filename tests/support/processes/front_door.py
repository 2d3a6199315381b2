"""A running installation of one process, and what tests send to its gateway."""

import contextlib
import hashlib
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import psycopg
from tests.support.clients.trust import trusted
from tests.support.folders import files_below
from tests.support.processes.windlass import Windlass


@dataclass(frozen=True)
class Front:
    """The installation, and the database under it."""

    windlass: Windlass
    database_url: str

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Returns the rows in the database."""
        with self._connection() as connection:
            return connection.execute(query, parameters).fetchall()

    @contextlib.contextmanager
    def inspection_held(self) -> Iterator[None]:
        """Holds the inspection of files until the end of the block; they can still be stored."""
        with self._connection() as connection:
            connection.execute(
                "CREATE OR REPLACE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS "
                "'BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NEW; END'"
            )
            connection.execute(
                "CREATE OR REPLACE TRIGGER hold BEFORE UPDATE ON files_files "
                "FOR EACH ROW EXECUTE FUNCTION hold()"
            )
            connection.execute("SELECT pg_advisory_lock(42)")
            yield
            connection.execute("SELECT pg_advisory_unlock(42)")
            connection.execute("DROP TRIGGER hold ON files_files")

    def _connection(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.database_url.replace("+psycopg", ""), autocommit=True)

    def objects(self) -> set[str]:
        """Returns the keys in the object store, including those of unfinished puts.

        Without those of the audit log, which signs itself now and then.
        """
        if self.windlass.objects is not None:
            found = self.windlass.objects()
        else:
            root = self.windlass.data / "objects"
            found = {str(path.relative_to(root)) for path in files_below(root)}
        return {key for key in found if not key.removeprefix("content/").startswith("audit")}


def chat(*turns: tuple[str, str]) -> dict[str, Any]:
    """Returns an example of the chat format."""
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


GOOD = chat(("user", "Ahoy?"), ("assistant", "Ahoy!"))
PREFERENCE = {
    "input": {"messages": [{"role": "user", "content": "Ahoy?"}]},
    "preferred_output": [{"role": "assistant", "content": "Ahoy!"}],
    "non_preferred_output": [{"role": "assistant", "content": "Hm."}],
}
MODEL = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "model.safetensors": b"\x02\0\0\0\0\0\0\0{}",
}


def jsonl(rows: Iterable[Any]) -> bytes:
    """Returns rows as lines; text is inserted as it is."""
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    return "".join(f"{line}\n" for line in lines).encode()


def upload(
    client: Any, content: bytes, *, purpose: str = "fine-tune", name: str = "t.jsonl"
) -> Any:
    """Uploads a file with openai-python."""
    return client.files.create(file=(name, io.BytesIO(content)), purpose=purpose)


def promise(files: dict[str, bytes]) -> list[dict[str, Any]]:
    """Returns files as an import promises them."""
    return [
        {"path": path, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for path, data in files.items()
    ]


def import_model(
    http: httpx.Client, name: str, files: dict[str, bytes], *, for_everyone: bool = False
) -> httpx.Response:
    """Imports a model; returns the last response."""
    body = {"id": name, "files": promise(files), "global": for_everyone}
    started = http.post("/v1/models/imports", json=body)
    if started.status_code != 200:
        return started
    for target in started.json()["uploads"]:
        put = httpx.put(target["url"], content=files[target["path"]], verify=trusted())
        put.raise_for_status()
    return http.post(f"/v1/models/imports/{started.json()['import_id']}/complete")
