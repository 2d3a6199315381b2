"""Secrets of a project under a key of its own: revoked, destroyed, replaced, and away."""

import asyncio
import base64
import os
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pytest
from openai.resources.admin.organization import AsyncOrganization
from tests.integration.tenancy.external_keys.conftest import Keepers
from tests.support.clients.openai_admin import administering
from tests.support.fakes import vault
from tests.support.services.front import Front, running_front
from tests.support.waiting import until

from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.core.errors import Unavailable, from_rpc
from windlass.core.keyring.envelope import Envelope, mark_of


class Secrets:
    """Secrets of projects, put as tenants do and read as services do."""

    def __init__(self, front: Front):
        self._front = front
        self._stub = front.app.clients.stub(rpc.UsersInternalServiceStub)

    async def put(self, project_id: str, name: str, value: str = "hunter2") -> int:
        async with self._front.http(**{"OpenAI-Project": project_id}) as http:
            return (await http.put(f"/v1/secrets/{name}", json={"value": value})).status_code

    async def reveal(self, project_id: str, name: str) -> str:
        request = pb.RevealSecretRequest(project_id=project_id, name=name)
        try:
            return (await self._stub.RevealSecret(request)).value.decode()
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from error

    async def refused(self, project_id: str, name: str) -> bool:
        """Whether its key is said to be unavailable."""
        try:
            await self.reveal(project_id, name)
        except Unavailable as error:
            return error.reason == "external_key_unavailable"
        return False


@pytest.fixture
def secrets(front: Front) -> Secrets:
    return Secrets(front)


async def rows(url: str, query: str, *values: object) -> list[Any]:
    async with await psycopg.AsyncConnection.connect(url.replace("+psycopg", "")) as connection:
        return list(await (await connection.execute(query, values)).fetchall())


async def keys_of(url: str, project_id: str) -> list[Any]:
    query = "SELECT external_key_id, settled FROM users_data_keys WHERE project_id = %s"
    return await rows(url, query, project_id)


async def marks_of(url: str, project_id: str) -> list[Any]:
    return await rows(url, "SELECT mark FROM users_data_keys WHERE project_id = %s", project_id)


async def test_a_key_that_is_taken_away_closes_its_project_and_no_other(
    admin: AsyncOrganization,
    front: Front,
    keepers: Keepers,
    organization_id: str,
    secrets: Secrets,
) -> None:
    label = keepers.hsm.key("tenants", f"of-{organization_id}")
    front.app.settings.external_keys.tokens["vault-room"].organizations = [organization_id]
    body = {"name": "x", "type": "pkcs11", "token_name": "vault-room", "key_label": label}
    async with front.http() as http:
        key = (await http.post("/v1/organization/external_keys", json=body)).json()["id"]
    own = (await admin.projects.create(name="Own", external_key_id=key)).id
    plain = (await admin.projects.create(name="Plain")).id
    for project in (own, plain):
        assert await secrets.put(project, "wandb") == 200
        assert await secrets.reveal(project, "wandb") == "hunter2"
    with keepers.hsm.away():
        # Within the time that a data key is kept: a second here.
        await until(lambda: secrets.refused(own, "wandb"))
        assert await secrets.put(own, "another") == 503
        assert await secrets.reveal(plain, "wandb") == "hunter2"
        assert await secrets.put(plain, "another") == 200
    await until(lambda: secrets.refused(own, "wandb"), holds=lambda refused: not refused)
    assert await secrets.reveal(own, "wandb") == "hunter2"
    # Destroyed, nothing opens it any more, whoever has the database and the master key.
    keepers.hsm.destroy("tenants", label)
    await until(lambda: secrets.refused(own, "wandb"))
    assert await secrets.reveal(plain, "wandb") == "hunter2"


async def test_a_project_changes_its_key_while_its_secrets_are_read(
    admin: AsyncOrganization,
    keepers: Keepers,
    organization_id: str,
    secrets: Secrets,
    database_url: str,
) -> None:
    first, second = [
        (await admin.external_keys.create(**keepers.aws(organization_id))).id for _ in range(2)
    ]
    project = (await admin.projects.create(name="Own")).id
    names = [f"s{number}" for number in range(60)]
    for name in names:
        assert await secrets.put(project, name, name) == 200
    done = asyncio.Event()

    async def read() -> None:
        while not done.is_set():
            for name in names[::10]:
                assert await secrets.reveal(project, name) == name

    async def write() -> None:
        while not done.is_set():
            assert await secrets.put(project, "busy", "bee") == 200
            await asyncio.sleep(0)

    async def settled() -> bool:
        return await keys_of(database_url, project) == [(key_id, True)]

    tasks = [asyncio.create_task(read()), asyncio.create_task(write())]
    for key_id in (first, second, "", first):
        await admin.projects.update(project, external_key_id=key_id)
        await until(settled)
    before = await marks_of(database_url, project)
    await admin.projects.update(project, extra_body={"rotate_data_key": True})
    await until(settled)
    done.set()
    await asyncio.gather(*tasks)
    assert await marks_of(database_url, project) != before
    for name in names:
        assert await secrets.reveal(project, name) == name
    # Nothing is left of the second: it may go.
    assert (await admin.external_keys.delete(second)).id == second
    query = "SELECT DISTINCT substring(envelope, 1, 8) FROM users_secrets WHERE project_id = %s"
    assert await rows(database_url, query, project) == await marks_of(database_url, project)


async def test_a_vault_that_is_away_is_told_and_waited_for(
    admin: AsyncOrganization, front: Front, secrets: Secrets
) -> None:
    body = {"name": "x", "type": "vault", "key": "windlass", "token": vault.TOKEN}
    with vault.running() as address:
        async with front.http() as http:
            url = "/v1/organization/external_keys"
            made = (await http.post(url, json={**body, "address": address})).json()
        project = (await admin.projects.create(name="Own", external_key_id=made["id"])).id
        assert await secrets.put(project, "wandb") == 200
    await until(lambda: secrets.refused(project, "wandb"))
    # Another key seals what is put from now on, and what it has sealed opens.
    await admin.projects.update(project, external_key_id="")
    assert await secrets.put(project, "new") == 200
    assert await secrets.reveal(project, "new") == "hunter2"
    assert await secrets.refused(project, "wandb")
    # What the lost key sealed is in the way of its deletion until it is put anew.
    async with front.http() as http:
        gone = f"/v1/organization/external_keys/{made['id']}"
        assert (await http.delete(gone)).json()["error"]["code"] == "external_key_in_use"


async def test_the_database_and_the_root_key_open_nothing_of_an_own_key(
    admin: AsyncOrganization,
    keepers: Keepers,
    organization_id: str,
    secrets: Secrets,
    front: Front,
    database_url: str,
) -> None:
    key = await admin.external_keys.create(**keepers.aws(organization_id))
    project = (await admin.projects.create(name="Own", external_key_id=key.id)).id
    assert await secrets.put(project, "wandb") == 200
    ((wrapped,),) = await rows(
        database_url, "SELECT wrapped FROM users_data_keys WHERE project_id = %s", project
    )
    ((envelope,),) = await rows(
        database_url, "SELECT envelope FROM users_secrets WHERE project_id = %s", project
    )
    assert str(wrapped).startswith("aws:")
    for purpose in ("tenants' secrets", "projects' data keys"):
        with pytest.raises(ValueError):
            front.app.keyring.envelope(purpose).open(bytes(envelope), context=f"{project}/wandb")


async def test_without_a_key_of_its_own_a_project_is_readable_by_the_release_before(
    admin: AsyncOrganization, secrets: Secrets, front: Front, database_url: str
) -> None:
    project = (await admin.projects.create(name="Plain")).id
    assert await secrets.put(project, "wandb") == 200
    ((envelope,),) = await rows(
        database_url, "SELECT envelope FROM users_secrets WHERE project_id = %s", project
    )
    before = front.app.keyring.envelope("tenants' secrets")
    assert before.open(bytes(envelope), context=f"{project}/wandb") == b"hunter2"
    assert await keys_of(database_url, project) == []


async def test_what_was_sealed_before_there_was_a_root_key_is_sealed_anew_at_a_start(
    database_url: str, tmp_path: Path
) -> None:
    former = os.urandom(32)
    data = tmp_path / "data"
    master_key = {"key": base64.b64encode(former).decode()}
    async with running_front(database_url, data, master_key=master_key) as front:
        async with administering(front) as admin:
            project = (await admin.projects.create(name="Old")).id
        sealed = Envelope([former]).seal(b"hunter2", context=f"{project}/wandb")
        await rows(
            database_url,
            "INSERT INTO users_secrets VALUES (%s, 'wandb', %s, 1, 1) RETURNING 1",
            *(project, sealed),
        )
        assert await Secrets(front).reveal(project, "wandb") == "hunter2"
    async with running_front(database_url, data, master_key=master_key) as front:
        ((envelope,),) = await rows(
            database_url, "SELECT envelope FROM users_secrets WHERE project_id = %s", project
        )
        assert mark_of(bytes(envelope)) != mark_of(sealed)
        assert await Secrets(front).reveal(project, "wandb") == "hunter2"
