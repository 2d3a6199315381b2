"""What a process keeps of projects' object keys, and for how long."""

from dataclasses import dataclass, field
from typing import Any, cast

import grpc
import pytest

from windlass.api.users.v1 import users_pb2 as pb
from windlass.core.errors import Unavailable
from windlass.object_keys import KNOWN_SECONDS, OUTAGE_SECONDS, UsersObjectKeys
from windlass.users.encryption import object_keys


class Failed(grpc.aio.AioRpcError):
    """An answer of users that is an error."""

    def __init__(self, code: grpc.StatusCode):
        super().__init__(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details="it is away")


@dataclass
class Users:
    """The users service, whose clock a test moves."""

    key_id: str = ""
    now: float = 1000.0
    failure: grpc.StatusCode | None = None
    asked: list[str] = field(default_factory=list)

    async def GetObjectSealing(
        self, request: pb.GetObjectSealingRequest, timeout: float
    ) -> pb.ObjectSealing:
        self._ask("sealing")
        return pb.ObjectSealing(key_id=self.key_id)

    async def OpenObjectKey(
        self, request: pb.OpenObjectKeyRequest, timeout: float
    ) -> pb.OpenObjectKeyResponse:
        self._ask("open")
        secret = f"{request.project_id}/{request.key_id}".encode()
        return pb.OpenObjectKeyResponse(secret=secret, keep_seconds=60)

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.failure:
            raise Failed(self.failure)

    @property
    def keys(self) -> UsersObjectKeys:
        return UsersObjectKeys(lambda: cast(Any, self), clock=lambda: self.now)


async def test_that_nothing_is_sealed_counts_for_a_second() -> None:
    users = Users()
    keys = users.keys
    for _ in range(10):
        assert await keys.sealing("proj_1") is None
    assert users.asked == ["sealing"]
    users.key_id = "okey_1"
    assert not await keys.seals("proj_1")
    users.now += KNOWN_SECONDS
    assert await keys.seals("proj_1")
    # By then every process has heard of a project's first key.
    assert KNOWN_SECONDS < object_keys.KNOWN_SECONDS - 1


async def test_an_opened_key_is_kept_for_as_long_as_users_said() -> None:
    users = Users("okey_1")
    keys = users.keys
    first = await keys.sealing("proj_1")
    assert first is not None
    assert first.secret == b"proj_1/okey_1"
    users.now += 59
    assert await keys.opening("proj_1", "okey_1") == first
    users.failure = grpc.StatusCode.UNAVAILABLE
    # Work that runs goes on by it.
    assert await keys.sealing("proj_1") == first
    users.now += 1
    with pytest.raises(Unavailable):
        await keys.opening("proj_1", "okey_1")
    assert users.asked == ["sealing", "open", "sealing", "open"]


async def test_one_project_never_gets_the_key_of_another() -> None:
    keys = Users("okey_1").keys
    secrets = {(await keys.opening(project, "okey_1")).secret for project in ("proj_1", "proj_2")}
    assert secrets == {b"proj_1/okey_1", b"proj_2/okey_1"}


async def test_an_outage_of_users_is_outlasted_for_a_minute_by_what_was_known() -> None:
    users = Users()
    keys = users.keys
    assert not await keys.seals("proj_1")
    users.failure = grpc.StatusCode.UNAVAILABLE
    users.now += OUTAGE_SECONDS - 1
    assert not await keys.seals("proj_1")
    for project in ("proj_1", "proj_unknown"):
        users.now += 1
        with pytest.raises(Unavailable):
            await keys.seals(project)


async def test_users_of_the_release_before_seals_nothing() -> None:
    users = Users(failure=grpc.StatusCode.UNIMPLEMENTED)
    assert await users.keys.sealing("proj_1") is None


async def test_what_is_known_to_be_sealed_stays_so_beside_a_server_of_the_release_before() -> None:
    users = Users("okey_1")
    keys = users.keys
    assert await keys.seals("proj_1")
    users.now += KNOWN_SECONDS
    users.failure = grpc.StatusCode.UNIMPLEMENTED
    assert await keys.seals("proj_1")
