"""Authentication at the gateway: keys, scopes, revocation, and an outage of users."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import openai
import pytest
from tests.support.clients.raw_http import raw
from tests.support.services.front import Front, running_front
from tests.support.waiting import until

from windlass.api.auth.v1 import auth_pb2
from windlass.api.rbac.v1 import rbac_pb2
from windlass.api.users.v1 import users_pb2
from windlass.core import clock
from windlass.core.errors import REASON_KEY, Unavailable
from windlass.core.operations import status_of
from windlass.core.rpc import auth
from windlass.gateway.authentication.authenticator import Authenticator
from windlass.gateway.authentication.credentials import MadeUpKey
from windlass.gateway.authentication.grace import SETTLE_SECONDS
from windlass.key_cache import ANSWER_SECONDS, CUT_OFF_SECONDS, SILENT_SECONDS, TRUST_SECONDS


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    async with running_front(database_url, tmp_path / "data") as front:
        yield front


async def make_key(front: Front, **fields: Any) -> dict[str, Any]:
    async with front.http() as http:
        answer = await http.post("/v1/api_keys", json={"name": "test", **fields})
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


BAD: tuple[dict[str, str], ...] = (
    {},
    {"Authorization": "Bearer wrong"},
    {"Authorization": "Basic abc"},
    {"Authorization": "Bearer"},
    {"X-API-Key": "wl-" + "x" * 43},
    {"Authorization": "Bearer " + "x" * 5000},
)


async def test_without_a_good_key_there_is_nothing(front: Front) -> None:
    paths = ("/v1/models", "/v1/chat/completions", "/v1/files", "/v1/nope")
    async with front.http() as http:
        http.headers.clear()
        for headers, path in itertools.product(BAD, paths):
            method = "GET" if path != "/v1/chat/completions" else "POST"
            answer = await http.request(method, path, headers=headers)
            assert answer.status_code == 401, (headers, path)
            assert answer.json()["error"]["code"] == "invalid_api_key", (headers, path)
            assert answer.headers["x-request-id"]


async def test_a_key_works_as_bearer_and_as_x_api_key(front: Front) -> None:
    key = await make_key(front)
    assert key["redacted_value"].endswith(key["value"][-4:])
    assert (await front.openai(key["value"]).models.list()).data == []
    async with front.http() as http:
        del http.headers["authorization"]
        answer = await http.get("/v1/me", headers={"X-API-Key": key["value"]})
    assert answer.json()["key"]["id"] == key["id"]


async def refusal(client: openai.AsyncOpenAI, seconds: float) -> openai.AuthenticationError:
    """Returns the refusal of the key; raises AssertionError if it works for too long."""

    async def refused() -> openai.AuthenticationError | None:
        try:
            await client.models.list()
        except openai.AuthenticationError as error:
            return error
        return None

    return await until(refused, seconds)


async def test_a_revoked_key_stops_within_a_second(front: Front) -> None:
    key = await make_key(front)
    client = front.openai(key["value"])
    await client.models.list()
    async with front.http() as http:
        assert (await http.delete(f"/v1/api_keys/{key['id']}")).status_code == 200
    assert "revoked" in (await refusal(client, 1.0)).message


async def test_an_expired_key_stops_on_time(front: Front) -> None:
    key = await make_key(front, expires_in=5)
    client = front.openai(key["value"])
    await client.models.list()
    assert "expired" in (await refusal(client, key["expires_at"] - time.time() + 0.5)).message


async def test_a_projects_key_is_for_no_other(front: Front) -> None:
    key = await make_key(front)
    with pytest.raises(openai.PermissionDeniedError) as caught:
        await front.openai(key["value"], project="proj_other").models.list()
    assert caught.value.code == "mismatched_project"


async def test_an_owner_chooses_the_project_by_its_header(front: Front) -> None:
    async with front.http() as http:
        project = (await http.post("/v1/projects", json={"title": "second"})).json()
        answer = await http.get("/v1/me", headers={"OpenAI-Project": project["id"]})
        assert answer.json()["project"]["id"] == project["id"]
        # The same key without the header is another scope, cached apart.
        assert (await http.get("/v1/me")).json()["project"]["is_default"]


SECRET = auth.new_secret("wl-")


def refused(code: grpc.StatusCode, reason: str = "") -> grpc.aio.AioRpcError:
    trailing = grpc.aio.Metadata(*([(REASON_KEY, reason)] if reason else []))
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing)


class Ear:
    """Stands for rbac and users, so that a test can silence the beats."""

    def __init__(self) -> None:
        self.asked = 0
        self.away = self.refuses = False
        self.expires_at = 0
        self.timeouts: list[float] = []
        self.beats: asyncio.Queue[users_pb2.KeyBeat] = asyncio.Queue()
        self.during: Any = None

    async def Authenticate(self, request: Any, timeout: float) -> rbac_pb2.AuthenticateResponse:
        if self.away:
            raise refused(grpc.StatusCode.UNAVAILABLE)
        self.asked += 1
        self.timeouts.append(timeout)
        if self.refuses or request.key_digest != auth.digest(SECRET):
            raise refused(grpc.StatusCode.UNAUTHENTICATED, "invalid_api_key")
        if self.during is not None:
            await self.during()
        principal = auth_pb2.Principal(organization_id="org", project_id="proj", key_id="key_1")
        return rbac_pb2.AuthenticateResponse(principal=principal, expires_at=self.expires_at)

    def WatchKeys(self, request: Any) -> "Ear":
        return self

    async def __aiter__(self) -> AsyncIterator[users_pb2.KeyBeat]:
        while True:
            yield await self.beats.get()

    def cancel(self) -> None:
        """Ends the watch; there is nothing to do."""

    async def beat(self, *changed: str, reset: bool = False) -> None:
        self.beats.put_nowait(users_pb2.KeyBeat(changed_key_ids=changed, reset=reset))
        for _ in range(5):
            await asyncio.sleep(0)


HEADERS = {b"authorization": b"Bearer " + SECRET.encode()}
OTHERS = {b"x-api-key": auth.new_secret("wl-").encode()}


@pytest.fixture
async def ear() -> AsyncIterator[tuple[Ear, Authenticator]]:
    ear = Ear()
    authenticator = Authenticator(ear, ear)  # type: ignore[arg-type]  # stands for both stubs
    watching = asyncio.create_task(authenticator.watch())
    await ear.beat(reset=True)
    yield ear, authenticator
    watching.cancel()


async def test_a_known_key_costs_no_call_while_beats_come(ear: tuple[Ear, Authenticator]) -> None:
    rbac, authenticator = ear
    for _ in range(10):
        await authenticator.authenticate(HEADERS)
    assert rbac.asked == 1
    await rbac.beat("key_2")
    await authenticator.authenticate(HEADERS)
    assert rbac.asked == 1
    await rbac.beat("key_1")
    await authenticator.authenticate(HEADERS)
    assert rbac.asked == 2


async def test_what_was_never_made_is_not_looked_up(ear: tuple[Ear, Authenticator]) -> None:
    rbac, authenticator = ear
    other = SECRET[:10] + ("a" if SECRET[10] != "a" else "b") + SECRET[11:]
    for made_up in (other, "wl-short", "sk-proj-" + "x" * 40, SECRET + "\u00ff"):
        headers = {b"x-api-key": made_up.encode("latin-1")}
        with pytest.raises(MadeUpKey):
            authenticator.known(headers)
        with pytest.raises(MadeUpKey):
            await authenticator.authenticate(headers)
    assert rbac.asked == 0
    # One of before there were checksums may be good.
    with pytest.raises(grpc.aio.AioRpcError):
        await authenticator.authenticate({b"x-api-key": SECRET[:-6].encode()})
    assert rbac.asked == 1


async def test_without_beats_every_request_asks_and_fails_closed(
    ear: tuple[Ear, Authenticator], monkeypatch: pytest.MonkeyPatch
) -> None:
    rbac, authenticator = ear
    await authenticator.authenticate(HEADERS)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + TRUST_SECONDS + 0.01)
    for _ in range(3):
        await authenticator.authenticate(HEADERS)
    assert rbac.asked == 4
    rbac.away = True
    with pytest.raises(Unavailable):
        await authenticator.authenticate(HEADERS)


async def test_who_hears_no_beats_refuses_sooner(
    ear: tuple[Ear, Authenticator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off from the beats, a gateway has nobody wait for an answer that may never come."""
    rbac, authenticator = ear
    await authenticator.authenticate(HEADERS)
    now = time.monotonic()
    for late in (TRUST_SECONDS, SILENT_SECONDS):
        monkeypatch.setattr(time, "monotonic", lambda late=late: now + late + 0.01)
        await authenticator.authenticate(HEADERS)
    # At first it may be late alone; what is kept counts no more in either case.
    assert rbac.timeouts == [ANSWER_SECONDS, ANSWER_SECONDS, CUT_OFF_SECONDS]


async def test_a_gateway_is_ready_when_keys_can_be_looked_up(
    ear: tuple[Ear, Authenticator],
) -> None:
    """Users may be there, whose beats it hears, and rbac not yet."""
    rbac, authenticator = ear
    await authenticator.check()
    rbac.away = True
    with pytest.raises(Unavailable):
        await authenticator.check()


async def test_an_answer_that_a_change_overtook_is_none(
    ear: tuple[Ear, Authenticator],
) -> None:
    rbac, authenticator = ear

    async def change_once() -> None:
        rbac.during = None
        await rbac.beat("key_1")

    rbac.during = change_once
    await authenticator.authenticate(HEADERS)
    assert rbac.asked == 2
    await authenticator.authenticate(HEADERS)
    assert rbac.asked == 2


async def test_a_key_that_never_stops_changing_is_refused(
    ear: tuple[Ear, Authenticator],
) -> None:
    rbac, authenticator = ear
    rbac.during = lambda: rbac.beat("key_1")
    with pytest.raises(Unavailable):
        await authenticator.authenticate(HEADERS)


GRACE = 60.0
Lenient = tuple[Ear, Authenticator, Callable[[float], None]]


@pytest.fixture
async def lenient(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lenient]:
    """A gateway that was granted a grace and knows a key, and how to be so late after a beat."""
    ear = Ear()
    stubs: Any = ear
    authenticator = Authenticator(stubs, stubs, grace_seconds=GRACE)
    watching = asyncio.create_task(authenticator.watch())
    await ear.beat(reset=True)
    await authenticator.authenticate(HEADERS, graced=True)
    now = time.monotonic
    yield ear, authenticator, lambda s: monkeypatch.setattr(time, "monotonic", lambda: now() + s)
    monkeypatch.undo()
    watching.cancel()


async def test_a_known_key_outlasts_an_outage_for_inference_alone(lenient: Lenient) -> None:
    rbac, authenticator, late = lenient
    rbac.away = True
    for seconds in (2, GRACE - 1):
        late(seconds)
        assert (await authenticator.authenticate(HEADERS, graced=True)).key_id == "key_1"
        # No other asks for a moment.
        assert authenticator.known(HEADERS, graced=True)
        assert authenticator.known(HEADERS) is None
        with pytest.raises(Unavailable):
            await authenticator.authenticate(HEADERS)
        with pytest.raises(Unavailable):
            await authenticator.authenticate(OTHERS, graced=True)
    assert authenticator.vouches("key_1")
    assert not authenticator.vouches("key_2")
    late(GRACE + 1)
    assert authenticator.known(HEADERS, graced=True) is None
    assert not authenticator.vouches("key_1")
    with pytest.raises(Unavailable):
        await authenticator.authenticate(HEADERS, graced=True)


async def test_in_its_grace_a_gateway_is_ready_and_degraded(lenient: Lenient) -> None:
    _, authenticator, late = lenient
    excuse = authenticator.grace.excuse
    # Whatever waits for the database, whichever services share the process.
    away = {"process": "ok", "gateway.keys": "Away.", "jobs.statuses": "Stale."}
    back = {**away, "gateway.keys": "ok"}
    assert excuse(back) == back
    late(GRACE - 1)
    assert excuse(away) == {
        "process": "ok", "gateway.keys": "degraded: Away.", "jobs.statuses": "degraded: Stale."
    }  # fmt: skip
    assert status_of(excuse(away)) == "degraded"
    for part in ("process", "objects"):
        assert status_of(excuse({**away, part: "Failed."})) == "not ready"
    # Keys are checked again, and not every stream has begun anew.
    assert status_of(excuse(back)) == "degraded"
    late(GRACE - 1 + SETTLE_SECONDS)
    assert excuse(back) == back
    assert excuse(away) == away


async def test_who_does_not_answer_is_not_waited_for(
    lenient: Lenient, monkeypatch: pytest.MonkeyPatch
) -> None:
    rbac, authenticator, late = lenient
    monkeypatch.setattr("windlass.gateway.authentication.authenticator.ASK_SECONDS", 0.01)
    rbac.during = asyncio.Event().wait
    late(2)
    async with asyncio.timeout(10):
        assert await authenticator.authenticate(HEADERS, graced=True)


async def test_an_answer_goes_before_the_grace(lenient: Lenient) -> None:
    rbac, authenticator, late = lenient
    rbac.refuses = True
    late(2)
    with pytest.raises(grpc.aio.AioRpcError):
        await authenticator.authenticate(HEADERS, graced=True)
    rbac.away = True
    with pytest.raises(Unavailable):
        await authenticator.authenticate(HEADERS, graced=True)


async def test_a_key_that_changed_or_expired_has_no_grace(lenient: Lenient) -> None:
    rbac, authenticator, late = lenient
    rbac.expires_at = clock.now_seconds() + 1
    await rbac.beat("key_1")
    await authenticator.authenticate(HEADERS, graced=True)
    await until(lambda: authenticator.has_ended("key_1"))
    rbac.away = True
    late(2)
    assert not authenticator.vouches("key_1")
    with pytest.raises(Unavailable):
        await authenticator.authenticate(HEADERS, graced=True)
    late(0)
    await rbac.beat("key_1")
    late(2)
    with pytest.raises(Unavailable):
        await authenticator.authenticate(HEADERS, graced=True)


async def test_nobody_reads_the_body_of_somebody_unknown(front: Front) -> None:
    """80 connections that sent a body each made the process 645 MiB larger."""
    for path, status in (
        (b"/v1/chat/completions", 401), (b"/v1/files", 401), (b"/v1/fine_tuning/jobs", 401),
        (b"/nope", 404), (b"/docs", 401), (b"/objects/files/x", 403), (b"/healthz", 405),
    ):  # fmt: skip
        async with raw(int(front.url.rpartition(":")[2])) as client:
            await client.send(
                b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: 8000000\r\n\r\n" % path
            )
            # The answer comes before the body, which then does not come through.
            assert await client.status() == status, path
            with contextlib.suppress(ConnectionError):
                await client.send(b"x" * 7_999_999)
                assert await client.all() is not None, path
            assert client.reader.at_eof() or client.reader.exception() is not None, path
