"""Quotas: at their bound, over two processes at once, between two tenants, after failures."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from tests.support.clients.trust import trusted
from tests.support.processes.front_door import MODEL, import_model, promise
from tests.support.services.front import Front, running_front
from tests.support.waiting import until

from windlass.core.config import QuotasSection
from windlass.core.db import Database
from windlass.core.errors import AppError, PermissionDenied, ResourceExhausted
from windlass.core.quotas import Quota, Quotas, bounds, stored
from windlass.files.domain import InspectionResult, Upload
from windlass.files.scheduler import FilesScheduler
from windlass.files.store import FileStore, files, uploads
from windlass.users.store import TenantStore

SMALL = {"projects": 3, "stored_bytes": 2000, "uploads": 2}


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    async with running_front(database_url, tmp_path / "data", quotas=SMALL) as front:
        yield front


def by_name(answer: httpx.Response) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in answer.raise_for_status().json()["data"]}


async def upload(http: httpx.AsyncClient, size: int) -> httpx.Response:
    return await http.post(
        "/v1/files", data={"purpose": "user_data"}, files={"file": ("x.bin", b"x" * size)}
    )


async def test_stored_bytes_are_counted_and_bounded_until_deleted(front: Front) -> None:
    async with front.http() as http:
        project = (await http.get("/v1/me")).json()["project"]["id"]
        made = await upload(http, 1500)
        assert made.status_code == 200, made.text
        refused = await upload(http, 501)
        assert refused.status_code == 403
        error = refused.json()["error"]
        assert error["code"] == "quota_exceeded"
        assert "2001 stored bytes; its quota is 2000" in error["message"]
        assert (await upload(http, 500)).status_code == 200
        shown = by_name(await http.get("/v1/quotas", params={"project_id": project}))
        assert (shown["stored_bytes"]["bound"], shown["stored_bytes"]["used"]) == (2000, 2000)
        # Full: refused before a byte of it is taken.
        assert (await upload(http, 1)).json()["error"]["code"] == "quota_exceeded"
        await http.delete(f"/v1/files/{made.json()['id']}")
        await until(lambda: upload(http, 1000), holds=lambda answer: answer.status_code == 200)
        async with front.app.database.autocommit() as connection:
            left = (
                await connection.execute(sa.select(sa.func.count()).select_from(files))
            ).scalar()
        assert left == 2, "what was refused is no file"


async def test_models_are_stored_bytes_until_deleted(front: Front) -> None:
    def model(size: int) -> dict[str, bytes]:
        rest = size - sum(map(len, MODEL.values()))
        return {**MODEL, "tokenizer.json": MODEL["tokenizer.json"] + b" " * rest}

    async def imported(name: str, size: int) -> httpx.Response:
        return await asyncio.to_thread(import_model, blocking, name, model(size))

    headers = {"Authorization": f"Bearer {front.owner_key}"}
    with httpx.Client(base_url=front.url, headers=headers, verify=trusted()) as blocking:
        async with front.http() as http:
            project = (await http.get("/v1/me")).json()["project"]["id"]
            assert (await upload(http, 200)).status_code == 200
            assert (await imported("first", 1500)).status_code == 200
            shown = by_name(await http.get("/v1/quotas", params={"project_id": project}))
            assert shown["stored_bytes"]["used"] == 1700
            refused = await imported("second", 301)
            assert refused.status_code == 403
            assert "2001 stored bytes; its quota is 2000" in refused.json()["error"]["message"]
            # Two that each have room when they begin have none together when they end.
            body = [{"id": name, "files": promise(model(300))} for name in ("third", "fourth")]
            begun = [(await http.post("/v1/models/imports", json=one)).json() for one in body]
            answers = []
            for started in begun:
                for target in started["uploads"]:
                    content = model(300)[target["path"]]
                    put = await asyncio.to_thread(httpx.put, target["url"], content=content)
                    put.raise_for_status()
                complete = f"/v1/models/imports/{started['import_id']}/complete"
                answers.append((await http.post(complete)).status_code)
            assert answers == [200, 403]
            await http.delete("/v1/models/first")
            await until(
                lambda: imported("second", 1500), holds=lambda answer: answer.status_code == 200
            )


async def test_owners_set_projects_within_what_operators_set_organizations(front: Front) -> None:
    async with front.http() as operator:
        home = (await operator.get("/v1/me")).json()
        project = home["project"]["id"]
        key = {"name": "k", "role": "organization_owner"}
        owner_key = (await operator.post("/v1/api_keys", json=key)).json()["value"]
        key = {"name": "m", "role": "project_member", "project_id": project}
        member_key = (await operator.post("/v1/api_keys", json=key)).json()["value"]
        other = (await operator.post("/v1/organizations", json={"title": "Other"})).json()["id"]
        async with front.http(**{"OpenAI-Organization": other}) as theirs:
            key = {"name": "o", "role": "organization_owner"}
            strange_key = (await theirs.post("/v1/api_keys", json=key)).json()["value"]
        put = {"bound": 50, "project_id": project}
        async with front.http(owner_key) as owner:
            refused = await owner.put("/v1/quotas/jobs", json={"bound": 100})
            assert refused.status_code == 403, "the organization's are the operator's"
            await operator.put("/v1/quotas/jobs", json={"bound": 40})
            refused = await owner.put("/v1/quotas/jobs", json=put)
            assert "organization's quota of jobs is 40" in refused.json()["error"]["message"]
            assert (await owner.put("/v1/quotas/jobs", json=put | {"bound": 30})).is_success
            shown = by_name(await owner.get("/v1/quotas", params={"project_id": project}))
            assert (shown["jobs"]["bound"], shown["jobs"]["set"]) == (30, True)
            unset = await owner.delete("/v1/quotas/jobs", params={"project_id": project})
            assert by_name(unset)["jobs"]["bound"] == 10_000
            unknown = await owner.put("/v1/quotas/cheese", json={"bound": 1, "project_id": project})
            assert unknown.json()["error"]["param"] == "name"
        async with front.http(member_key) as member:
            assert (await member.put("/v1/quotas/jobs", json=put)).status_code == 403
            assert by_name(await member.get("/v1/quotas"))["jobs"]["bound"] == 40
        async with front.http(strange_key) as stranger:
            for answer in (
                await stranger.put("/v1/quotas/jobs", json=put),
                await stranger.get("/v1/quotas", params={"project_id": project}),
                await stranger.delete("/v1/quotas/jobs", params={"project_id": project}),
            ):
                assert answer.status_code == 404
            assert by_name(await stranger.get("/v1/quotas"))["jobs"]["bound"] == 0


async def test_one_tenant_at_its_bound_leaves_the_other_alone(front: Front) -> None:
    async with front.http() as http:
        made = [await http.post("/v1/projects", json={"title": f"p{n}"}) for n in range(4)]
        # The default project is one of the three.
        assert [one.status_code for one in made] == [200, 200, 403, 403]
        assert "4 projects; its quota is 3" in made[2].json()["error"]["message"]
        other = (await http.post("/v1/organizations", json={"title": "Other"})).json()["id"]
        async with front.http(**{"OpenAI-Organization": other}) as theirs:
            assert (await theirs.post("/v1/projects", json={"title": "p0"})).status_code == 200
        first = made[0].json()["id"]
        assert (await http.post(f"/v1/projects/{first}/archive")).is_success
        assert (await http.post("/v1/projects", json={"title": "again"})).status_code == 200


async def test_two_processes_never_both_take_the_last_one(database_url: str) -> None:
    """Each has connections of its own; without the lock both would count the same.

    One project is there from the beginning.
    """
    quotas = Quotas(QuotasSection(projects=6))
    ours, theirs = Database(database_url, pool_size=8), Database(database_url, pool_size=8)
    try:
        stores = [TenantStore(ours, quotas), TenantStore(theirs, quotas)]
        organization = (await stores[0].create_organization("Acme", owner="user")).id
        made = await asyncio.gather(
            *(stores[n % 2].create_project(organization, f"p{n}", owner="user") for n in range(20)),
            return_exceptions=True,
        )
        refused = [one for one in made if isinstance(one, PermissionDenied)]
        assert len(made) - len(refused) == 5
        assert len(refused) == 15
        assert {one.reason for one in refused} == {"quota_exceeded"}
    finally:
        await ours.close()
        await theirs.close()


class Killed(Exception):
    """The process died before its transaction ended."""


class StoredBytes(RuleBasedStateMachine):
    """Stored bytes counted equal those of the rows after any sequence of operations."""

    url: str

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.database = Database(self.url, pool_size=4)
        self.store = FileStore(self.database, Quotas(QuotasSection(stored_bytes=5000, uploads=4)))
        self.number = 0
        self.open: list[Upload] = []
        self.files: list[tuple[str, str]] = []
        self.run(self._clear())

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    async def _clear(self) -> None:
        async with self.database.begin() as connection:
            for table in (files, uploads, stored, bounds):
                await connection.execute(table.delete())

    @rule(project=st.sampled_from(["a", "b"]))
    def begin_upload(self, project: str) -> None:
        self.number += 1
        name = f"{project}{self.number}"
        ticket = Upload(name, f"file-{name}", "org", project, "x", "user_data", 0, name)
        try:
            self.run(self.store.create_upload(ticket))
        except ResourceExhausted:
            assert len([one for one in self.open if one.project_id == project]) >= 4
        except PermissionDenied:
            assert self.run(self._sums())["counted"][project] >= 5000
        else:
            self.open.append(ticket)

    @rule(size=st.integers(1, 3000), repeat=st.booleans(), data=st.data())
    def commit(self, size: int, repeat: bool, data: st.DataObject) -> None:
        if not self.open:
            return
        ticket = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        for _ in range(1 + repeat):
            try:
                self.run(
                    self.store.commit(
                        ticket, size=size, sha256=b"", verdict=InspectionResult("processed")
                    )
                )
            except PermissionDenied:
                self.run(self.store.drop_upload(ticket.project_id, ticket.id))
                return
        self.files.append((ticket.project_id, ticket.file_id))

    @rule(size=st.integers(1, 3000), data=st.data())
    def killed_before_the_commit(self, size: int, data: st.DataObject) -> None:
        if not self.open:
            return
        ticket = self.open[data.draw(st.integers(0, len(self.open) - 1))]

        async def die() -> None:
            broken = FileStore(self.database, _Dying(QuotasSection(stored_bytes=0)))
            await broken.commit(
                ticket, size=size, sha256=b"", verdict=InspectionResult("processed")
            )

        with pytest.raises(Killed):
            self.run(die())

    @rule()
    def abort(self) -> None:
        if self.open:
            ticket = self.open.pop()
            self.run(self.store.drop_upload(ticket.project_id, ticket.id))

    @rule(sweeps=st.integers(0, 3))
    def delete(self, sweeps: int) -> None:
        if self.files:
            self.run(self.store.mark_deleting(*self.files.pop()))
        objects: Any = _Nothing()
        wake: Any = None
        scheduler = FilesScheduler(self.database, objects, wake)
        for _ in range(sweeps):
            self.run(scheduler.sweep())

    async def _sums(self) -> dict[str, dict[str, int]]:
        async with self.database.autocommit() as connection:
            query = sa.select(files.c.project_id, sa.func.sum(files.c.size)).group_by(
                files.c.project_id
            )
            real = {row[0]: int(row[1]) for row in await connection.execute(query)}
            counted = {row.scope_id: row.bytes for row in await connection.execute(stored.select())}
        return {"real": real, "counted": counted}

    @invariant()
    def the_sums_are_right(self) -> None:
        if not hasattr(self, "loop"):
            return
        sums = self.run(self._sums())
        real, counted = sums["real"], sums["counted"]
        assert counted.get("org", 0) == sum(real.values())
        for project in "ab":
            assert 0 <= counted.get(project, 0) == real.get(project, 0) <= 5000

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.run(self.database.close())
            self.loop.close()


class _Dying(Quotas):
    """Ends the process, as far as the database can tell, once everything is counted."""

    async def store(self, *arguments: Any) -> None:
        await super().store(*arguments)
        raise Killed


class _Nothing:
    """An object store that has nothing to delete."""

    async def delete(self, key: str) -> None:
        """Deletes nothing."""


def test_what_is_counted_is_what_is_there(database_url: str) -> None:
    StoredBytes.url = database_url
    run_state_machine_as_test(
        StoredBytes,
        settings=settings(
            max_examples=15,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_sentences_name_the_number_and_the_bound() -> None:
    quotas = Quotas(QuotasSection())
    assert {quota.value for quota in Quota} == set(QuotasSection.model_fields)
    assert quotas.default(Quota.JOBS, project=True) == 10_000
    assert quotas.default(Quota.JOBS, project=False) == 0
    assert quotas.default(Quota.PROJECTS, project=False) == 1000
    assert issubclass(ResourceExhausted, AppError)
