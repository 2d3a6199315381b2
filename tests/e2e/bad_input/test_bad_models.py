"""Models that are not let in: code, pickles, paths, wrong content, taken names."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai import NotFoundError
from tests.support.clients.refusals import refusal, refused
from tests.support.factories.tenants import Tenants
from tests.support.processes.front_door import MODEL, Front, import_model, promise

ZEROS = "0" * 64


@pytest.fixture
def http(tenants: Tenants) -> Iterator[httpx.Client]:
    with tenants.member.http() as made:
        yield made


def entry(path: str, size: Any = 1, sha256: Any = ZEROS) -> dict[str, Any]:
    return {"path": path, "bytes": size, "sha256": sha256}


PATHS = (
    "../x.json", "a/../../x.json", "/etc/x.json", "a//b.json", "./x.json", "a\\b.json", "C:x.json",
    "~/x.json", "a b.json", "ä.json", ".hidden.json", "x.json\n", "a/" * 9 + "x.json", "-x.json",
    "x" * 600 + ".json", "model.safetensors/x.json",
)  # fmt: skip
UNSAFE = (
    "pytorch_model.bin", "model.pt", "weights.ckpt", "x.pkl", "optimizer.pth", "x.PICKLE",
    "modeling_x.py", "run.sh", "x.so", "adapter_config.json", "x.gguf", "x",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_a_path_stays_in_its_folder(http: httpx.Client, path: str) -> None:
    body = {"id": "m", "files": [*promise(MODEL), entry(path)]}
    said = refusal(http.post("/v1/models/imports", json=body), 400)
    assert said.param in ("files", "files.3.path")
    # A path that is only too long is refused by the schema of the route.
    too_long = ("invalid_value",) if len(path) > 512 else ()
    assert said.code in ("invalid_path", "duplicate_path", "unsafe_file", *too_long)


@pytest.mark.parametrize("path", UNSAFE)
def test_nothing_that_runs_is_let_in(http: httpx.Client, path: str) -> None:
    body = {"id": "m", "files": [*promise(MODEL), entry(path)]}
    said = refusal(http.post("/v1/models/imports", json=body), 400)
    assert (said.code, said.param) == ("unsafe_file", "files")
    assert path in said.message


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no files": ({"files": []}, "files"),
    "too many files": ({"files": [entry(f"{i}.json") for i in range(1001)]}, "files"),
    "far too many files": ({"files": [entry(f"{i}.json") for i in range(10_001)]}, "files"),
    "twice the same": ({"files": [*promise(MODEL), *promise(MODEL)]}, "files"),
    "the same but for case": ({"files": [*promise(MODEL), entry("Config.json")]}, "files"),
    "no config": ({"files": [entry("tokenizer.json"), entry("m.safetensors")]}, "files"),
    "no tokenizer": ({"files": [entry("config.json"), entry("m.safetensors")]}, "files"),
    "no weights": ({"files": [entry("config.json"), entry("tokenizer.json")]}, "files"),
    "weights too large": (
        {"files": [*promise(MODEL), entry("x.safetensors", 2**40)]},
        "files.3.bytes",
    ),
    "no size": ({"files": [{"path": "config.json", "sha256": ZEROS}]}, "files.0.bytes"),
    "a size below nothing": ({"files": [entry("config.json", -1)]}, "files.0.bytes"),
    "a size beyond all": ({"files": [entry("config.json", 10**30)]}, "files.0.bytes"),
    "no path": ({"files": [entry("")]}, "files.0.path"),
    "half a digest": ({"files": [entry("config.json", 1, "ab")]}, "files.0.sha256"),
    "a digest of no digits": ({"files": [entry("config.json", 1, "x" * 64)]}, "files.0.sha256"),
    "a digest of other digits": ({"files": [entry("config.json", 1, "٣" * 64)]}, "files.0.sha256"),
    "another field": ({"url": "http://x"}, "url"),
    "global by words": ({"global": "perhaps"}, "global"),
    **{
        f"id {name!r}": ({"id": name}, "id")
        for name in ("", "..", "a/b/c", "../x", "a b", "ft:x:y", "x" * 129, "-x", "a\nb", "ä", ".x")
    },
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_field_of_an_import_is_named(http: httpx.Client, name: str) -> None:
    fields, param = WRONG[name]
    body = {"id": "m", "files": promise(MODEL), **fields}
    assert refusal(http.post("/v1/models/imports", json=body), 400).param == param


@pytest.mark.parametrize(
    "document",
    [
        b'{"model_type": "x", "auto_map": {"AutoModel": "modeling_x.X"}}',
        b'{"model_type": "x", "deep": [{"auto_map": {"a": "b"}}]}',
        b'{"model_type": "x", "trust_remote_code": true}',
        b'{"model_type": "x", "custom_generate": "x/y"}',
        b"{}", b"[]", b"nope", b'{"model_type": 1}', b"[" * 100_000, b"\xff",
    ],
)  # fmt: skip
def test_a_configuration_that_brings_code_is_refused(http: httpx.Client, document: bytes) -> None:
    answer = import_model(http, "coded", {**MODEL, "config.json": document})
    assert refusal(answer, 400).code in ("remote_code", "invalid_config")
    refusal(http.get("/v1/models/coded"), 404)


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("tokenizer_config.json",
         {"tokenizer_class": "BertTokenizer", "vocab": "../../owner.key"}),
        ("special_tokens_map.json", {"vocab": "../../owner.key"}),
        ("tokenizer.json", {"model": {"type": "WordPiece", "vocab": "../../owner.key"}}),
        ("tokenizer_config.json", {"fast_tokenizer_files": ["tokenizer.1.0.json/../../x"]}),
    ],
)  # fmt: skip
def test_a_document_that_names_a_file_of_the_server_is_refused(
    http: httpx.Client, path: str, document: dict[str, Any]
) -> None:
    files = {**MODEL, path: json.dumps(document).encode()}
    assert refusal(import_model(http, "reader", files), 400).code == "unsafe_document"
    refusal(http.get("/v1/models/reader"), 404)


def test_an_index_names_no_file_of_another_model(http: httpx.Client) -> None:
    index = {"weight_map": {"a": "../mv-other/model.safetensors"}}
    files = {**MODEL, "model.safetensors.index.json": json.dumps(index).encode()}
    assert refusal(import_model(http, "shards", files), 400).code == "incomplete_model"


def started(http: httpx.Client, name: str) -> tuple[str, dict[str, str]]:
    answer = http.post("/v1/models/imports", json={"id": name, "files": promise(MODEL)})
    made = answer.json()
    return made["import_id"], {one["path"]: one["url"] for one in made["uploads"]}


def test_an_import_is_whole_or_nothing(http: httpx.Client, front: Front) -> None:
    import_id, urls = started(http, "broken")
    complete = f"/v1/models/imports/{import_id}/complete"
    before = front.objects()
    assert refusal(http.post(complete), 409).code == "upload_incomplete"
    for path, url in urls.items():
        for content in (MODEL[path][:-1], MODEL[path] + b"x"):
            assert httpx.put(url, content=content).status_code in (400, 403)
        signed = re.sub(r"/[^/?]+\?", "/x.json?", url)
        assert httpx.put(signed, content=MODEL[path]).status_code == 403
        assert httpx.delete(url).is_error
        if front.windlass.objects is None:
            # A store of another kind compares digests when the import completes.
            refusal(httpx.put(url, content=b"x" * len(MODEL[path])), 400)
    assert front.objects() <= before
    assert refusal(http.post(complete), 409).code == "upload_incomplete"
    for path in list(urls)[1:]:
        httpx.put(urls[path], content=MODEL[path]).raise_for_status()
    last = next(iter(urls))
    assert last in refusal(http.post(complete), 409).message
    refusal(http.get("/v1/models/broken"), 404)
    httpx.put(urls[last], content=MODEL[last]).raise_for_status()
    assert http.post(complete).json()["id"] == "broken"
    assert http.post(complete).json()["id"] == "broken"


def test_a_taken_name_is_taken(http: httpx.Client) -> None:
    assert import_model(http, "taken", MODEL).status_code == 200
    other = {**MODEL, "config.json": b'{"model_type": "other"}'}
    assert refusal(import_model(http, "taken", other), 409).code == "model_exists"
    assert import_model(http, "taken", MODEL).status_code == 200


def test_a_model_for_everyone_is_the_administrators(http: httpx.Client, tenants: Tenants) -> None:
    said = refusal(import_model(http, "everyones", MODEL, for_everyone=True), 403)
    assert (said.type, said.param) == ("permission_error", "global")
    with tenants.admin.http() as admin:
        assert import_model(admin, "everyones", MODEL, for_everyone=True).status_code == 200
    refusal(http.delete("/v1/models/everyones"), 403)
    assert http.get("/v1/models/everyones").status_code == 200


@pytest.mark.parametrize("odd", ["import-unknown", "%2e%2e", "x" * 3000, "%0a", "'"])
def test_an_import_that_is_not_there(http: httpx.Client, odd: str) -> None:
    refusal(http.post(f"/v1/models/imports/{odd}/complete"), 404)


def test_a_model_that_is_not_there(tenants: Tenants) -> None:
    client = tenants.member.openai()
    for call in (client.models.retrieve, client.models.delete):
        for name in ("unknown", "a/b/c", "../x", "imports", "ft:a:b::c", "ä", "x" * 3000):
            assert refused(NotFoundError, call, name).status == 404
