"""Checkpoints leave their run: to projects of the organization, to copies and to downloads."""

import io
import tarfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import psycopg
import pytest
from tests.integration.tuning.test_log import Client
from tests.support.services.filled_tenant import ok
from tests.support.services.front import Front
from tests.support.waiting import until

from windlass.core.objects.sealing.frames import MAGIC
from windlass.tuning.transfer import downloads

PROMPT = {"chunks": [{"type": "encoded_text", "tokens": [1]}]}
SAMPLE = {"prompt": PROMPT, "sampling_params": {"max_tokens": 1}}


@dataclass
class Tenant:
    """A project, its owner's client and its key."""

    id: str
    client: Client
    key: str

    async def ask(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = await self.client.http.request(method, f"/api/v1/{path}", json=body)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None


@dataclass
class Place:
    """Two projects of one organization, of which the first has a checkpoint, and a stranger's."""

    mine: Tenant
    near: Tenant
    stranger: Tenant
    path: str
    sampler_path: str

    @property
    def checkpoint(self) -> str:
        run_id, _, rest = self.path.removeprefix("tinker://").partition("/")
        return f"training_runs/{run_id}/checkpoints/{rest}"


async def tenant(
    http: httpx.AsyncClient, stack: AsyncExitStack, front: Front, title: str,
    role: str = "project_owner",
) -> Tenant:  # fmt: skip
    project = await ok(http.post("/v1/projects", json={"title": title}))
    return await with_key(http, stack, front, project["id"], role)


async def with_key(
    http: httpx.AsyncClient, stack: AsyncExitStack, front: Front, project: str, role: str
) -> Tenant:
    body = {"name": role, "project_id": project, "role": role}
    key = (await ok(http.post("/v1/api_keys", json=body)))["value"]
    client = Client(await stack.enter_async_context(front.http(key)))
    return Tenant(project, client, key)


async def saved(client: Client, seq_id: int, name: str, route: str = "save_weights") -> str:
    body = {"model_id": client.run, "path": name, "seq_id": seq_id}
    return str((await client.result(await client.post(route, body)))["path"])


@pytest.fixture
async def place(front: Front) -> AsyncIterator[Place]:
    async with front.http() as http, AsyncExitStack() as stack:
        mine = await tenant(http, stack, front, "mine")
        near = await tenant(http, stack, front, "near")
        made = await ok(http.post("/v1/organizations", json={"title": "Others"}))
        http.headers["OpenAI-Organization"] = made["id"]
        stranger = await tenant(http, stack, front, "strange")
        for one in (mine, near, stranger):
            await one.client.begin()
        await mine.client.result(await mine.client.step(1))
        path = await saved(mine.client, 2, "s")
        sampler_path = await saved(mine.client, 3, "s", "save_weights_for_sampler")
        yield Place(mine, near, stranger, path, sampler_path)


def reads(place: Place, who: Tenant, number: int) -> list[tuple[str, str, Any]]:
    """Every request that reads what the first project has."""
    session = who.client.session
    return [
        ("POST", "weights_info", {"tinker_path": place.path}),
        ("POST", "load_weights", {
            "session_id": session, "model_seq_id": number, "path": place.path, "optimizer": True,
        }),
        ("POST", "create_sampling_session", {
            "session_id": session, "sampling_session_seq_id": number,
            "model_path": place.sampler_path,
        }),
        ("POST", "asample", {"model_path": place.sampler_path, **SAMPLE}),
        ("GET", f"{place.checkpoint}/archive", None),
        ("GET", f"{place.checkpoint}/external_weights_urls", None),
        ("POST", "copy_weights", {"source_path": place.path}),
    ]  # fmt: skip


async def publish(place: Place, method: str = "POST") -> None:
    for path in (place.checkpoint, place.checkpoint.replace("/weights/", "/sampler_weights/")):
        await place.mine.ask(method, f"{path}/publish", status=204)


async def test_what_is_published_is_read_by_the_organization_alone(place: Place) -> None:
    near, stranger = place.near, place.stranger
    for one in (near, stranger):
        for method, path, body in reads(place, one, 1):
            await one.ask(method, path, body, 404)
    await publish(place)
    [listed] = [
        one for one in (await place.mine.ask("GET", "checkpoints"))["checkpoints"]
        if one["tinker_path"] == place.path
    ]  # fmt: skip
    assert listed["public"]
    for method, path, body in reads(place, stranger, 1):
        await stranger.ask(method, path, body, 404)
    for method, path, body in reads(place, near, 1):
        await near.ask(method, path, body, 302 if path.endswith("archive") else 200)
    resumed = Client(near.client.http, near.client.session, f"{near.client.session}:train:1")
    assert (await resumed.result(await resumed.step(1)))["metrics"]["step:max"] == 2.0
    sampler = f"{near.client.session}:sample:1"
    asked = {"sampling_session_id": sampler, "seq_id": 0, **SAMPLE}
    assert "error" not in await near.client.result(await near.ask("POST", "asample", asked))
    await publish(place, "DELETE")
    for method, path, body in reads(place, near, 2):
        await near.ask(method, path, body, 404)
    # A sampler of before reads no more; what was loaded is a copy.
    later = await near.client.result(await near.ask("POST", "asample", asked | {"seq_id": 1}))
    assert (later["category"], "No such checkpoint" in later["error"]) == ("user", True)
    assert (await resumed.result(await resumed.step(2)))["metrics"]["step:max"] == 3.0


async def test_a_published_checkpoint_is_changed_by_its_project_alone(place: Place) -> None:
    await publish(place)
    for one in (place.near, place.stranger):
        for method, path in (
            ("POST", "/publish"), ("DELETE", "/publish"), ("DELETE", ""), ("PUT", "/ttl"),
        ):  # fmt: skip
            body = {"ttl_seconds": 3600} if path == "/ttl" else None
            await one.ask(method, place.checkpoint + path, body, 404)
    await place.near.ask("POST", "weights_info", {"tinker_path": place.path})
    await place.mine.ask("DELETE", place.checkpoint, status=204)
    await place.near.ask("POST", "weights_info", {"tinker_path": place.path}, 404)


async def test_a_member_publishes_nothing_and_an_owner_is_audited(
    front: Front, place: Place
) -> None:
    async with front.http() as http, AsyncExitStack() as stack:
        member = await with_key(http, stack, front, place.mine.id, "project_member")
        await member.ask("POST", f"{place.checkpoint}/publish", status=403)
        await publish(place)

        async def noted() -> list[tuple[str, str, str]]:
            entries = (await ok(http.get("/api/v1/audit?event_type=checkpoints")))["entries"]
            found = [(one["event"], one["event_details"]) for one in entries]
            return [
                (event.rpartition("/")[2], details["outcome"], details["project_id"])
                for event, details in found
                if "Publish" in event
            ]

        done = ("PublishCheckpoint", "OK", place.mine.id)
        refused = ("PublishCheckpoint", "PERMISSION_DENIED", place.mine.id)
        await until(noted, holds=lambda found: found == [refused, done, done])


async def test_a_copy_is_the_projects_own(front: Front, place: Place) -> None:
    await publish(place)
    body = {"source_path": place.path, "destination_project_id": place.near.id}
    http = place.near.client.http
    http.headers["X-Idempotency-Key"] = "once"
    copied = (await place.near.ask("POST", "copy_weights", body))["tinker_path"]
    assert (await place.near.ask("POST", "copy_weights", body))["tinker_path"] == copied
    other = body | {"source_path": place.sampler_path}
    assert (await place.near.ask("POST", "copy_weights", other, 409))["code"] == "body_differs"
    del http.headers["X-Idempotency-Key"]
    named = {"source_path": place.path, "session_id": place.near.client.session, "model_seq_id": 7}
    in_session = (await place.near.ask("POST", "copy_weights", named))["tinker_path"]
    assert in_session == f"tinker://{place.near.client.session}:train:7/weights/s"
    await publish(place, "DELETE")
    await place.mine.ask("DELETE", place.checkpoint, status=204)
    for number, path in enumerate((copied, in_session), 1):
        loaded = {
            "session_id": place.near.client.session, "model_seq_id": number, "path": path,
            "optimizer": True,
        }  # fmt: skip
        made = await place.near.client.post("load_weights", loaded)
        run = (await place.near.client.result(made))["model_id"]
        resumed = Client(http, place.near.client.session, run)
        assert (await resumed.result(await resumed.step(1)))["metrics"]["step:max"] == 2.0
    run_id = copied.removeprefix("tinker://").partition("/")[0]
    assert (await place.near.ask("GET", f"training_runs/{run_id}"))["base_model"] == "toy"
    copy = Client(http, run=run_id)
    assert (await copy.step(1, 410))["code"] == "run_is_copy"


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"ttl_seconds": 60}, 400),
        ({"ttl_seconds": -1}, 400),
        ({"ttl_seconds": 2**60}, 400),
        ({"destination_project_id": "proj_other"}, 404),
        ({"session_id": "session-none", "model_seq_id": 1}, 404),
        ({"session_id": "session-none"}, 400),
        ({"model_seq_id": 1}, 400),
        ({"source_path": "tinker://x/weights/s"}, 404),
        ({"source_path": "x"}, 404),
        ({"weights_access_token": "tml-wl-nothing"}, 401),
    ],
)
async def test_a_bad_copy_is_refused(place: Place, change: dict[str, Any], status: int) -> None:
    body = {"source_path": place.path} | change
    await place.mine.ask("POST", "copy_weights", body, status)


async def test_a_damaged_checkpoint_is_not_copied(front: Front, place: Place) -> None:
    found = [one async for one in front.app.objects.list(f"tuning/{place.mine.id}/checkpoints/")]
    for one in found:
        await front.app.objects.put(one.key, chunks(b"{}"))
    refused = await place.mine.ask("POST", "copy_weights", {"source_path": place.path}, 410)
    assert refused["code"] == "checkpoint_damaged"
    assert len((await place.mine.ask("GET", "checkpoints"))["checkpoints"]) == 2


async def chunks(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def test_a_run_has_no_more_copies_than_a_project_may(
    front: Front, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.tuning.transfer.copy_store.MAX_COPIES", 1)
    await place.mine.ask("POST", "copy_weights", {"source_path": place.path})
    refused = await place.mine.ask("POST", "copy_weights", {"source_path": place.path}, 429)
    assert refused["code"] == "too_many_copies"


@pytest.mark.parametrize("is_sealed", [False, True])
async def test_downloads_are_whole_and_end(
    front: Front, place: Place, is_sealed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = place.mine
    if is_sealed:
        async with front.http() as http:
            path = f"/v1/organization/projects/{mine.id}"
            await ok(http.post(path, json={"rotate_data_key": True}))
    external = await saved(mine.client, 4, "out", "save_weights_external")
    assert external == f"tinker://{mine.client.run}/external_weights/out"
    state = await saved(mine.client, 5, "sealed")
    run = f"training_runs/{mine.client.run}/checkpoints"
    found = await mine.ask("GET", f"{run}/external_weights/out/external_weights_urls")
    async with httpx.AsyncClient() as anybody:
        for name, url in found["urls"].items():
            answer = await anybody.get(url)
            assert (name, answer.status_code, answer.json()) == ("null.json", 200, {"steps": 1})
        for _ in range(2):
            answer = await mine.client.http.get(f"/api/v1/{run}/weights/sealed/archive")
            assert answer.status_code == 302
            assert answer.headers["expires"].endswith(" GMT")
            packed = await anybody.get(answer.headers["location"])
            with tarfile.open(fileobj=io.BytesIO(packed.content)) as archive:
                assert archive.getnames() == ["null.json"]
                member = archive.extractfile("null.json")
                assert member is not None
                assert member.read() == b'{"steps": 1}'
        changed = answer.headers["location"].replace("expires=", "expires=9")
        assert (await anybody.get(changed)).status_code == 403
        monkeypatch.setattr(downloads, "URL_SECONDS", -1)
        late = await mine.client.http.get(f"/api/v1/{run}/weights/sealed/archive")
        assert (await anybody.get(late.headers["location"])).status_code == 403
    folder = front.app.settings.data_dir / "objects" / "content" / "tuning" / mine.id
    stored = [one.read_bytes() for one in folder.rglob("*") if one.is_file()]
    assert any(one.startswith(MAGIC) for one in stored) == is_sealed
    await mine.ask("DELETE", f"{run}/{state.split('/', maxsplit=3)[3]}", status=204)


async def test_a_trace_is_downloaded(place: Place) -> None:
    mine = place.mine
    path = f"sessions/{mine.client.session}/trace_export"
    found = await mine.ask("GET", path)
    async with httpx.AsyncClient() as anybody:
        events = (await anybody.get(found["url"])).json()["traceEvents"]
    assert [one["name"] for one in events if one["ph"] == "X"] == ["3", "2", "1", "0"]
    await place.near.ask("GET", path, status=404)


async def test_a_session_stays_in_its_project(place: Place) -> None:
    path = f"sessions/{place.mine.client.session}/project"
    await place.mine.ask("PUT", path, {"project_id": place.mine.id}, 204)
    for other in (place.near.id, "proj_none", ""):
        refused = await place.mine.ask("PUT", path, {"project_id": other}, 400)
        assert refused["code"] == "session_bound"
    await place.near.ask("PUT", path, {"project_id": place.near.id}, 404)


async def test_an_access_token_lends_what_its_account_may_read(front: Front, place: Place) -> None:
    stranger = place.stranger
    session = stranger.client.session

    def loaded(number: int, token: str) -> dict[str, Any]:
        return {
            "session_id": session, "model_seq_id": number, "path": place.path, "optimizer": True,
            "weights_access_token": token,
        }  # fmt: skip

    made = await stranger.client.post("load_weights", loaded(1, "tml-" + place.mine.key))
    assert await stranger.client.post("load_weights", loaded(1, "tml-" + place.mine.key)) == made, (
        "a repeat is the same"
    )
    run = (await stranger.client.result(made))["model_id"]
    resumed = Client(stranger.client.http, session, run)
    assert (await resumed.result(await resumed.step(1)))["metrics"]["step:max"] == 2.0
    again = {"model_id": run, "seq_id": 2, "path": place.path, "optimizer": True}
    token = {"weights_access_token": "tml-" + place.mine.key}
    assert "error" in await resumed.result(await resumed.post("load_weights", again))
    again["seq_id"] = 3
    assert "error" not in await resumed.result(await resumed.post("load_weights", again | token))
    copy = {"source_path": place.path} | token
    assert (await stranger.ask("POST", "copy_weights", copy))["tinker_path"]
    # Of what a neighbour published, only the neighbour gives.
    await publish(place)
    for number, key in ((4, place.near.key), (5, stranger.key)):
        await stranger.ask("POST", "load_weights", loaded(number, "tml-" + key), 404)
    await stranger.ask("POST", "load_weights", loaded(6, "tml-wl-nothing"), 401)


async def test_what_was_lent_is_due(front: Front, place: Place) -> None:
    url = front.app.database.url.replace("+psycopg", "")
    body = {
        "session_id": place.stranger.client.session, "model_seq_id": 1, "path": place.path,
        "optimizer": True, "weights_access_token": "tml-" + place.mine.key,
    }  # fmt: skip
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION due() RETURNS trigger AS"
            " 'BEGIN NEW.expires_at := 1; RETURN NEW; END' LANGUAGE plpgsql"
        )
        connection.execute(
            "CREATE TRIGGER due BEFORE INSERT ON tuning_loans FOR EACH ROW EXECUTE FUNCTION due()"
        )
    await place.stranger.ask("POST", "load_weights", body, 404)


async def test_a_model_takes_no_number_of_a_copy(place: Place) -> None:
    client = place.mine.client
    named = {"source_path": place.path, "session_id": client.session, "model_seq_id": 7}
    copied = (await place.mine.ask("POST", "copy_weights", named))["tinker_path"]
    body = {"session_id": client.session, "model_seq_id": 7, "base_model": "toy"}
    assert (await client.post("create_model", body, 409))["code"] == "body_differs"
    loaded = {
        "session_id": client.session, "model_seq_id": 7, "path": copied, "optimizer": True,
    }  # fmt: skip
    assert (await client.post("load_weights", loaded, 409))["code"] == "body_differs"


async def test_an_archive_that_is_made_too_late_is_removed(
    front: Front, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = downloads._packed
    # Its run does not go on from it.
    checkpoint = place.checkpoint.replace("/weights/", "/sampler_weights/")

    async def removed(objects: Any, prefix: str) -> AsyncIterator[bytes]:
        found = [one async for one in packed(objects, prefix)]
        await place.mine.ask("DELETE", checkpoint, status=204)
        await until(contents(front, prefix), holds=lambda keys: keys == [])
        for one in found:
            yield one

    monkeypatch.setattr(downloads, "_packed", removed)
    await place.mine.ask("GET", f"{checkpoint}/archive", status=404)
    assert await contents(front, f"tuning/{place.mine.id}/archives/")() == []


def contents(front: Front, prefix: str) -> Any:
    async def keys() -> list[str]:
        return [one.key async for one in front.app.objects.list(prefix)]

    return keys
