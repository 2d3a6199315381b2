"""Who sees which seats: the operator all, a project what its own models need and no name else."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.integration.tuning.test_trained import another_project
from tests.support.services.front import Front, running_front

from windlass.core.ids import new_id
from windlass.tuning.seats.holding import TurnTaking
from windlass.tuning.seats.identity import identity
from windlass.tuning.seats.ledger import SeatLedger, SeatWish
from windlass.tuning.seats.parking import NoParking
from windlass.tuning.seats.seating import LedgerSeating
from windlass.tuning.seats.tables import seats
from windlass.tuning.seats.turns import TurnStore
from windlass.tuning.storage.tables import runs
from windlass.tuning_api.seating.admission import Demand
from windlass.tuning_api.seating.turns import TurnPatience, TurnPolicy
from windlass.tuning_api.trainers.seats import SeatedWorkload

GIB = 2**30
DEVICE = {
    "device": "gpu-0", "device_bytes": 80 * GIB, "host_bytes": 44 * GIB, "max_residents": 8,
    "devices": 1, "project_id": "", "queue": "",
}  # fmt: skip


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    tuning = {"trainer": "null", "base_models": ["one", "other"]}
    async with running_front(database_url, tmp_path / "data", tuning=tuning) as made:
        yield made


async def listed(front: Front, key: str | None = None) -> dict[str, Any]:
    async with front.http(key) as http:
        answer = await http.get("/api/v1/seats")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_project_sees_what_its_models_need_and_who_waits_why(front: Front) -> None:
    theirs = await another_project(front)
    database = front.app.database
    ledger = SeatLedger(database, "node", "1:1", takes_turns=True, policy=TurnPolicy.FIFO)
    await ledger.declare([DEVICE])
    for workload, project in (("one", ""), ("other", ""), ("own", "proj_of_somebody")):
        seat = await ledger.ask(SeatWish(workload, project, Demand(16 * GIB, 16 * GIB)))
        await ledger.admit(*seat)
    everything = await listed(front)
    assert [one["state"] for one in everything["seats"]] == ["parked", "parked", "waiting"]
    assert "of which 32 GiB are taken" in everything["seats"][2]["reason"]
    assert everything["seats"][2]["project_id"] == "proj_of_somebody"
    assert [one["name"] for one in everything["devices"]] == ["gpu-0"]
    async with front.http() as http:
        first = (await http.get("/api/v1/seats?limit=2")).json()
        after = first["seats"][-1]["id"]
        rest = (await http.get(f"/api/v1/seats?limit=2&after={after}")).json()
    assert (first["has_more"], rest["has_more"]) == (True, False)
    assert first["seats"] + rest["seats"] == everything["seats"]
    nothing = await listed(front, theirs)
    assert nothing == {"devices": [], "seats": [], "has_more": False}
    async with front.http(theirs) as http:
        project_id = (await http.get("/v1/projects")).json()["data"][0]["id"]
    await _train(front, project_id, "other")
    async with database.begin() as connection:
        await connection.execute(
            seats.update()
            .where(seats.c.workload == "other")
            .values(asked_at=1.0, turn_project_id="proj_of_somebody")
        )
    seen = await listed(front, theirs)
    [seat] = seen["seats"]
    assert (seat["base_model"], seat["turn_project_id"]) == ("other", None)
    assert seat["reason"] == "It is the next that asked."
    assert [one["name"] for one in seen["devices"]] == ["gpu-0"]
    async with front.http("wl-nobody") as http:
        assert (await http.get("/api/v1/seats")).status_code == 401


async def test_a_project_learns_nothing_of_seats_that_are_another_projects(front: Front) -> None:
    theirs = await another_project(front)
    app = front.app
    ledger = SeatLedger(
        app.database, "node", identity(os.getpid()), takes_turns=True, policy=TurnPolicy.FIFO
    )
    await ledger.declare([DEVICE])
    store = TurnStore(app.database, TurnPolicy.FIFO, {})
    taking = TurnTaking(store, False, NoParking(), TurnPatience(1, 1), 1, 1, 1)
    demand = Demand(GIB, GIB)
    seating = LedgerSeating(ledger, taking, app.wake, lambda _: demand, lambda _: {})
    # Whoever comes first has the shared one made, and its run of all parameters has one of its own.
    asked = (SeatedWorkload("one"), SeatedWorkload("one", "run-of-somebody", 1))
    held = [await seating.take(one, "proj_of_somebody") for one in asked]
    async with front.http(theirs) as http:
        project_id = (await http.get("/v1/projects")).json()["data"][0]["id"]
    await _train(front, project_id, "one")
    seen = await listed(front, theirs)
    assert [(one["id"], one["project_id"]) for one in seen["seats"]] == [(held[0].id, None)]
    everything = await listed(front)
    assert [one["project_id"] for one in everything["seats"]] == [None, "proj_of_somebody"]
    for seat in held:
        await seat.give_back()


async def _train(front: Front, project_id: str, model: str) -> None:
    row = {
        "id": new_id("session-"), "organization_id": "org", "project_id": project_id,
        "user_id": "", "session_id": "s", "base_model": model, "settings": {},
        "user_metadata": {}, "created_at": 0, "last_request_at": 0,
    }  # fmt: skip
    async with front.app.database.begin() as connection:
        await connection.execute(sa.insert(runs).values(row))
