"""Events say who was refused, by which key, from where and why; a client's word counts nothing."""

from typing import Any

import grpc
import pytest
from tests.support.services.member_keys import Key, project
from tests.support.waiting import until

from windlass.api.files.v1 import files_pb2, files_pb2_grpc
from windlass.core.rpc.auth import Principal

GRADERS = "/v1/fine_tuning/alpha/graders"
HEADERS = {
    "X-Forwarded-For": "192.0.2.7", "windlass-client": "192.0.2.8", "Forwarded": "for=192.0.2.9",
    "X-Real-IP": "192.0.2.10",
}  # fmt: skip


async def events(owner: Key, key: Key, number: int) -> list[dict[str, Any]]:
    """The events of a key, oldest first, once there are so many."""

    async def told() -> list[dict[str, Any]]:
        params = {"limit": 1000, "order": "asc"}
        rows = (await owner.ask("GET", "/v1/audit_events", params=params)).json()["data"]
        return [one for one in rows if one["key_id"] == key.id]

    return await until(told, holds=lambda found: len(found) >= number)


async def test_refusals_say_who_from_where_and_why(owner: Key) -> None:
    room = await project(owner)
    key = await owner.make("project_owner", project_id=room, scopes=["files.read"])
    refused = await key.ask("GET", "/v1/fine_tuning/jobs", headers=HEADERS)
    chat = {"model": "m\n", "messages": []}
    unasked = await key.ask("POST", "/v1/chat/completions", json=chat, headers=HEADERS)
    grader = {"type": "string_check", "name": "g", "operation": "eq", "input": "a", "reference": ""}
    graded = await key.ask(
        "POST", f"{GRADERS}/run", json={"grader": grader, "model_sample": "a"}, headers=HEADERS
    )
    changed = await key.ask("PUT", "/v1/secrets/s", json={"value": "v"}, headers=HEADERS)
    assert [one.status_code for one in (refused, unasked, graded, changed)] == [403] * 4
    # What it may read is no event.
    assert (await key.ask("GET", "/v1/files")).status_code == 200
    found = await events(owner, key, 4)
    assert [one["action"].rpartition("/")[2] for one in found if "api" in one["action"]] == [
        "ListJobs", "PutSecret",
    ]  # fmt: skip
    assert [one["action"] for one in found if "gateway" in one["action"]] == [
        "gateway/POST /v1/chat/completions", f"gateway/POST {GRADERS}/run",
    ]  # fmt: skip
    for one in found:
        assert (one["outcome"], one["reason"]) == ("PERMISSION_DENIED", "insufficient_permissions")
        assert (one["address"], one["user_id"]) == ("127.0.0.1", "owner")
    asked = {one["request_id"] for one in found}
    assert asked == {one.headers["x-request-id"] for one in (refused, unasked, graded, changed)}


async def test_a_key_from_elsewhere_is_an_event(owner: Key) -> None:
    key = await owner.make("organization_owner", networks=["192.0.2.0/24"])
    assert (await key.ask("GET", "/v1/files", headers=HEADERS)).status_code == 403
    (found,) = await events(owner, key, 1)
    assert (found["action"], found["reason"]) == ("gateway/GET /v1/files", "address_not_allowed")
    assert found["address"] == "127.0.0.1"


async def test_what_a_key_does_has_its_address(owner: Key) -> None:
    key = await owner.make("organization_owner")
    await project(key)
    (made,) = await events(owner, key, 1)
    assert (made["outcome"], made["reason"], made["address"]) == ("OK", "", "127.0.0.1")


async def test_nobody_but_a_service_says_where_a_call_comes_from(owner: Key) -> None:
    app = owner.front.app
    principal = Principal(organization_id="org", permissions=frozenset({"files.read"}))
    token = app.tokens.sign_principal(principal)
    signed, said = ("windlass-principal", token), ("windlass-client", "192.0.2.8")
    ours = ("windlass-service", app.tokens.sign_service())
    async with grpc.aio.insecure_channel(app.clients.address("files")) as channel:
        files: Any = files_pb2_grpc.FilesServiceStub(channel)
        for metadata in ((signed, said), (signed, said, ("windlass-service", token))):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await files.GetFile(files_pb2.GetFileRequest(file_id="f"), metadata=metadata)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        for believed in ((signed,), (signed, said, ours)):
            with pytest.raises(grpc.aio.AioRpcError) as missing:
                await files.GetFile(files_pb2.GetFileRequest(file_id="f"), metadata=believed)
            assert missing.value.code() is not grpc.StatusCode.UNAUTHENTICATED
