"""Two tenants, two machines: what a project of a geography has runs where the label says so."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.resources.admin.organization import AsyncOrganization
from tests.support.agents.wire_agent import WireAgent
from tests.support.clients.openai_admin import administering, foreign_key, strict
from tests.support.services.front import MODULES, Front, running_engine, running_front
from tests.support.services.front_jobs import import_model
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.users import store as users_store

CHAT = b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'
ABLE = pb.EngineCapabilities(max_concurrency=8, context_length=512)
TRAINS = pb.Capacity(slots=8, backends=["trl"])


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    data, stores = tmp_path / "data", {"objects": "EU", "database": "EU"}
    modules = (*MODULES, "inference")
    async with running_front(database_url, data, modules, residency=stores) as front:
        yield front


class Machines:
    """A machine in the US and one in the EU, both for all projects."""

    def __init__(self, front: Front, us: WireAgent, eu: WireAgent):
        self.front, self.us, self.eu = front, us, eu

    async def label(self, agent: WireAgent, geography: str, **policy: Any) -> None:
        async with self.front.http() as http:
            body = {"geography": geography, **policy}
            answer = await http.patch(f"/v1/clusters/{agent.cluster_id}", json=body)
        assert (answer.status_code, answer.json()["geography"]) == (200, geography), answer.text

    def places(self, workload_id: str) -> set[str]:
        """Where a workload should run."""
        return {
            name
            for name, agent in (("us", self.us), ("eu", self.eu))
            if workload_id in agent.workloads
            and agent.workloads[workload_id].desired == pb.DESIRED_STATE_RUNNING
        }


@pytest.fixture
async def machines(front: Front) -> AsyncIterator[Machines]:
    # The first has more room, and is where everything would go.
    us = await WireAgent.join(front.app, "us", capacity=pb.Capacity(slots=64, backends=["trl"]))
    eu = await WireAgent.join(front.app, "eu", capacity=TRAINS)
    found = Machines(front, us, eu)
    await found.label(us, "US")
    await found.label(eu, "EU")
    try:
        yield found
    finally:
        await us.leave()
        await eu.leave()


async def key_of(admin: AsyncOrganization, project_id: str) -> str:
    made = await admin.projects.service_accounts.create(project_id, name="bot")
    assert made.api_key
    return made.api_key.value


async def a_job(front: Front, key: str) -> str:
    async with front.openai(key) as client:
        file = await client.files.create(file=("x.jsonl", CHAT * 20), purpose="fine-tune")
        job = await client.fine_tuning.jobs.create(model="tiny", training_file=file.id)
    return job.id


async def test_a_project_gets_its_geography_once(admin: AsyncOrganization, front: Front) -> None:
    made = strict(await admin.projects.create(name="Bound", geography="EU"))
    assert made.residency == "EU_STORAGE_PROCESSING"
    same = strict(await admin.projects.create(name="Same", residency="EU_STORAGE_PROCESSING"))
    assert same.residency == "EU_STORAGE_PROCESSING"
    assert strict(await admin.projects.create(name="Any", residency="GLOBAL")).residency is None
    assert strict(await admin.projects.update(made.id, geography="EU")).residency == made.residency
    with pytest.raises(openai.BadRequestError) as fixed:
        await admin.projects.update(made.id, geography="US", name="Moved")
    assert (fixed.value.code, fixed.value.param) == ("geography_fixed", "geography")
    assert strict(await admin.projects.retrieve(made.id)).name == "Bound"
    async with front.http() as http:
        ours = (await http.get(f"/v1/projects/{made.id}")).json()
        assert ours["geography"] == "EU"
        rest = await http.post("/v1/projects", json={"title": "Rest", "geography": "EU"})
        assert rest.json()["geography"] == "EU"


async def test_an_organization_has_so_many_of_them_at_most(
    admin: AsyncOrganization, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look of a scheduler lists them: those that one archives came on top without end."""
    monkeypatch.setattr(users_store, "MAX_GEOGRAPHY_PROJECTS", 2)
    for name in ("One", "Two"):
        made = await admin.projects.create(name=name, geography="EU")
        await admin.projects.archive(made.id)
    with pytest.raises(openai.BadRequestError) as refused:
        await admin.projects.create(name="Three", geography="EU")
    assert refused.value.param == "geography"
    assert strict(await admin.projects.create(name="Any")).residency is None


@pytest.mark.parametrize(
    ("said", "param"),
    [
        ({"geography": "eu"}, "geography"),
        ({"geography": ""}, "geography"),
        ({"geography": "EU", "residency": "EU_STORAGE_PROCESSING"}, "residency"),
        ({"residency": "JP_STORAGE"}, "residency"),
        ({"residency": {"data_residency": "eu"}}, "residency"),
    ],
)
async def test_what_is_no_geography_is_refused(
    admin: AsyncOrganization, said: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await admin.projects.create(name="Red", **said)
    assert refused.value.param == param
    assert [one.name async for one in admin.projects.list()] == ["Default project"]


async def test_a_geography_that_the_stores_are_not_in_is_refused(
    admin: AsyncOrganization, front: Front
) -> None:
    with pytest.raises(openai.ConflictError) as refused:
        await admin.projects.create(name="Far", geography="US")
    assert (refused.value.code, refused.value.param) == ("geography_mismatch", "geography")
    assert "object store is in EU (residency.objects)" in refused.value.message
    async with front.http() as http:
        answer = await http.post("/v1/projects", json={"title": "Far", "geography": "US"})
    assert answer.json()["error"]["code"] == "geography_mismatch"
    assert [one.name async for one in admin.projects.list()] == ["Default project"]


async def test_jobs_stay_in_their_geography_and_move_when_a_label_changes(
    admin: AsyncOrganization, front: Front, machines: Machines
) -> None:
    await import_model(front, "tiny", everyones=True)
    bound = await key_of(admin, (await admin.projects.create(name="Bound", geography="EU")).id)
    async with administering(front, await foreign_key(front)) as other:
        free = await key_of(other, (await other.projects.create(name="Free")).id)
    ours = [await a_job(front, bound) for _ in range(3)]
    theirs = await a_job(front, free)
    await until(lambda: all(machines.places(one) == {"eu"} for one in ours))
    await until(lambda: machines.places(theirs) == {"us"})

    # The labels change places.
    await machines.label(machines.eu, "US")
    await until(lambda: all(not machines.places(one) for one in ours))

    async def explained() -> bool:
        async with front.http(bound) as http:
            said = (await http.get(f"/v1/fine_tuning/jobs/{ours[0]}/explain")).json()
        return "labelled EU" in str(said)

    await until(explained)
    await machines.label(machines.us, "EU")
    await until(lambda: all(machines.places(one) == {"us"} for one in ours))
    assert machines.places(theirs) == {"us"}


async def test_a_model_for_everyone_answers_a_project_where_its_data_stays(
    admin: AsyncOrganization, front: Front, machines: Machines
) -> None:
    await import_model(front, "tiny", everyones=True)
    bound = await key_of(admin, (await admin.projects.create(name="Bound", geography="EU")).id)
    async with administering(front, await foreign_key(front)) as other:
        free = await key_of(other, (await other.projects.create(name="Free")).id)
    async with running_engine() as away, running_engine() as near:
        for agent, engine, where in ((machines.us, away, "US"), (machines.eu, near, "EU")):
            address = engine.address.removeprefix("http://")
            await machines.label(agent, where, addresses=[address])
        weights = {machines.us.cluster_id: 1, machines.eu.cluster_id: 1}
        async with front.http() as http:
            body = {"min_replicas": 2, "clusters": weights}
            set_up = await http.put("/v1/servings/tiny", json=body)
            assert set_up.is_success, set_up.text
        for agent, engine in ((machines.us, away), (machines.eu, near)):
            workload = await agent.next_engine("tiny")
            await agent.report(
                workload, pb.PHASE_RUNNING, endpoint=engine.address, capabilities=ABLE
            )
        message: Any = [{"role": "user", "content": "hi"}]
        async with front.openai(bound) as client:
            for _ in range(8):
                await client.chat.completions.create(model="tiny", messages=message)
        assert (len(away.requests), len(near.requests)) == (0, 8)
        # The machine in the EU is said to be elsewhere: nothing answers any more.
        await machines.label(machines.eu, "US")

        async def refused() -> bool:
            async with front.openai(bound) as client:
                try:
                    await client.chat.completions.create(model="tiny", messages=message)
                except openai.InternalServerError as error:
                    return "data stays in EU" in str(error)
            return False

        await until(refused)
        assert not away.requests
        async with front.openai(free) as client:
            await client.chat.completions.create(model="tiny", messages=message)
