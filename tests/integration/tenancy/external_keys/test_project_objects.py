"""Objects of a project under a key of its own: sealed in the store, and closed with the key."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from openai import ConflictError
from openai.resources.admin.organization import AsyncOrganization
from tests.integration.tenancy.external_keys.conftest import Keepers
from tests.integration.tenancy.external_keys.test_project_secrets import rows
from tests.support.clients.openai_admin import administering, foreign_key
from tests.support.services.front import Front
from tests.support.waiting import until

from windlass.core.objects import SealedStore

LINE = orjson.dumps({
    "messages": [
        {"role": "user", "content": "what is our secret recipe?"},
        {"role": "assistant", "content": "nobody else's business"},
    ]
})  # fmt: skip
CONTENT = (LINE + b"\n") * 3000
AWAY = "external_key_unavailable"


class Files:
    """Files of a project, as its tenant has them, and as they lie in the store."""

    def __init__(self, front: Front, folder: Path, project: str, key: str | None = None):
        self._front = front
        self._key = key
        self.folder = folder / "files" / project
        self.project = project

    @asynccontextmanager
    async def http(self) -> AsyncIterator[httpx.AsyncClient]:
        async with self._front.http(self._key, **{"OpenAI-Project": self.project}) as http:
            yield http

    async def upload(self, content: bytes = CONTENT) -> httpx.Response:
        async with self.http() as http:
            return await http.post(
                "/v1/files", data={"purpose": "fine-tune"}, files={"file": ("a.jsonl", content)}
            )

    async def uploaded(self, content: bytes = CONTENT) -> str:
        answer = await self.upload(content)
        assert answer.status_code == 200, answer.text
        assert (answer.json()["status"], answer.json()["bytes"]) == ("processed", len(content))
        return str(answer.json()["id"])

    async def content(self, file_id: str, **headers: str) -> httpx.Response:
        async with self.http() as http:
            return await http.get(f"/v1/files/{file_id}/content", headers=headers)

    async def is_readable(self, file_id: str) -> bool:
        answer = await self.content(file_id)
        if answer.status_code == 200:
            assert answer.content == CONTENT
            return True
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, AWAY)
        return False

    def stored(self) -> list[bytes]:
        return [path.read_bytes() for path in sorted(self.folder.iterdir())]

    async def key(self, database_url: str, file_id: str) -> str:
        query = "SELECT object_key FROM files_files WHERE id = %s"
        return str((await rows(database_url, query, file_id))[0][0])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "objects" / "content"


async def sealed_files(
    front: Front,
    keepers: Keepers,
    folder: Path,
    admin: AsyncOrganization,
    organization_id: str,
    key: str | None = None,
) -> Files:
    """Files of a new project with a key of its organization's own."""
    own = await admin.external_keys.create(**keepers.aws(organization_id))
    project = await admin.projects.create(name="Own", external_key_id=own.id)
    return Files(front, folder, project.id, key)


async def own_key(front: Front, keepers: Keepers, organization_id: str) -> tuple[str, str]:
    """Returns the id and the label of a new external key in the token."""
    label = keepers.hsm.key("tenants", f"objects-of-{organization_id}")
    front.app.settings.external_keys.tokens["vault-room"].organizations = [organization_id]
    body = {"name": "x", "type": "pkcs11", "token_name": "vault-room", "key_label": label}
    async with front.http() as http:
        made: dict[str, Any] = (await http.post("/v1/organization/external_keys", json=body)).json()
    return made["id"], label


async def test_a_file_is_sealed_in_the_store_and_read_as_ever(
    admin: AsyncOrganization,
    front: Front,
    keepers: Keepers,
    organization_id: str,
    folder: Path,
    database_url: str,
) -> None:
    key = await admin.external_keys.create(**keepers.aws(organization_id))
    project = await admin.projects.create(name="Own", external_key_id=key.id)
    own = Files(front, folder, project.id)
    plain = Files(front, folder, (await admin.projects.create(name="Plain")).id)
    file_id, other = await own.uploaded(), await plain.uploaded()
    assert [LINE in lies for lies in own.stored()] == [False]
    assert plain.stored() == [CONTENT]
    assert await own.is_readable(file_id)
    part = await own.content(file_id, Range="bytes=65530-131080")
    assert (part.status_code, part.content) == (206, CONTENT[65530:131081])
    # As an agent has it: by a URL, which names no key.
    object_key = await own.key(database_url, file_id)
    assert isinstance(front.app.objects, SealedStore)
    url = await front.app.objects.presign_get(object_key, expires=60)
    assert front.app.objects.file(url) is None
    async with httpx.AsyncClient() as http:
        assert (await http.get(url)).content == CONTENT
        checkpoint = f"artifacts/{own.project}/ftjob-1/1/checkpoint-1/adapter.safetensors"
        put = await front.app.objects.presign_put(checkpoint, expires=60, bytes=len(CONTENT))
        assert (await http.put(put, content=CONTENT)).status_code == 200
    assert LINE not in (folder / checkpoint).read_bytes()
    assert b"".join([part async for part in front.app.objects.get(checkpoint)]) == CONTENT
    # Nobody else gets at it by the other project.
    assert (await plain.content(file_id)).status_code == 404
    assert await plain.is_readable(other)


async def test_two_organizations_with_keys_open_nothing_of_each_other(
    admin: AsyncOrganization,
    front: Front,
    keepers: Keepers,
    organization_id: str,
    folder: Path,
    database_url: str,
) -> None:
    files = [await sealed_files(front, keepers, folder, admin, organization_id)]
    stranger = await foreign_key(front)
    async with front.http(stranger) as http:
        theirs = (await http.get("/v1/me")).json()["principal"]["organization_id"]
    async with administering(front, stranger) as other:
        files.append(await sealed_files(front, keepers, folder, other, theirs, stranger))
    ids = [await one.uploaded() for one in files]
    for one, foreign in zip(files, reversed(ids), strict=True):
        assert (await one.content(foreign)).status_code == 404
    # Who can write into the store puts one's object in the other's place: it does not open there.
    ours, strange = [
        folder / await one.key(database_url, file_id)
        for one, file_id in zip(files, ids, strict=True)
    ]
    kept = ours.read_bytes()
    ours.write_bytes(strange.read_bytes())
    refused = await files[0].content(ids[0])
    assert refused.status_code == 409
    assert LINE not in refused.content
    ours.write_bytes(kept)
    assert await files[0].is_readable(ids[0])
    assert await files[1].is_readable(ids[1])


async def test_a_key_that_is_away_or_destroyed_closes_the_project_s_objects_alone(
    admin: AsyncOrganization, front: Front, keepers: Keepers, organization_id: str, folder: Path
) -> None:
    key, label = await own_key(front, keepers, organization_id)
    own = Files(front, folder, (await admin.projects.create(name="Own", external_key_id=key)).id)
    plain = Files(front, folder, (await admin.projects.create(name="Plain")).id)
    file_id, second, other = await own.uploaded(), await own.uploaded(), await plain.uploaded()
    with keepers.hsm.away():
        await until(lambda: own.is_readable(file_id), holds=lambda readable: not readable)
        refused = await own.upload()
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, AWAY)
        assert key in refused.json()["error"]["message"]
        assert len(own.stored()) == 2
        assert await plain.is_readable(other)
        await plain.uploaded()
    await until(lambda: own.is_readable(file_id))
    keepers.hsm.destroy("tenants", label)
    await until(lambda: own.is_readable(file_id), holds=lambda readable: not readable)
    assert await plain.is_readable(other)
    # What nobody reads any more can be removed.
    async with own.http() as http:
        for gone in (file_id, second):
            assert (await http.delete(f"/v1/files/{gone}")).status_code == 200
    await until(lambda: not own.folder.exists())


async def test_a_project_gets_a_key_and_then_another_one(
    admin: AsyncOrganization,
    front: Front,
    keepers: Keepers,
    organization_id: str,
    folder: Path,
    database_url: str,
) -> None:
    (first, label), second = (
        await own_key(front, keepers, organization_id),
        (await admin.external_keys.create(**keepers.aws(organization_id))).id,
    )
    own = Files(front, folder, (await admin.projects.create(name="Own")).id)
    before = await own.uploaded()
    await admin.projects.update(own.project, external_key_id=first)
    after = await own.uploaded()
    # What was there before stays as it is.
    assert sorted(LINE in lies for lies in own.stored()) == [False, True]
    stored = own.stored()

    async def is_settled() -> bool:
        query = "SELECT external_key_id, settled FROM users_data_keys WHERE project_id = %s"
        return await rows(database_url, query, own.project) == [(second, True)]

    await admin.projects.update(own.project, external_key_id=second)
    await until(is_settled)
    # The key of the objects is wrapped anew, and they are as they were: nothing needs the first.
    assert own.stored() == stored
    keepers.hsm.destroy("tenants", label)
    assert (await admin.external_keys.delete(first)).id == first
    third = await own.uploaded()
    # Beyond the time that anything is kept.
    expired = "SELECT clock_timestamp() > %s::timestamptz + interval '2 seconds'"
    ((now,),) = await rows(database_url, "SELECT clock_timestamp()")

    async def is_over() -> bool:
        return bool((await rows(database_url, expired, now))[0][0])

    await until(is_over)
    for file_id in (before, after, third):
        assert await own.is_readable(file_id)


async def test_a_data_key_is_changed_so_often_at_most(
    admin: AsyncOrganization,
    keepers: Keepers,
    organization_id: str,
    front: Front,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each change leaves a key that all later ones seal anew, within one lease."""
    key, _ = await own_key(front, keepers, organization_id)
    project = (await admin.projects.create(name="Own", external_key_id=key)).id
    monkeypatch.setattr("windlass.users.encryption.object_keys.MAX_OBJECT_KEYS", 2)
    await admin.projects.update(project, extra_body={"rotate_data_key": True})
    with pytest.raises(ConflictError) as refused:
        await admin.projects.update(project, extra_body={"rotate_data_key": True})
    assert refused.value.code == "too_many_object_keys"
    assert (await admin.projects.retrieve(project)).external_key_id == key
