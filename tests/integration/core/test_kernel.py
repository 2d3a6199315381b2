"""Tokens, leases and wake-ups against a real Postgres."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa
from tests.support.waiting import PATIENCE, until

from windlass.core.db import Database, leases
from windlass.core.db.leases import claim, held, lease_columns, released, run_loop
from windlass.core.db.wake import Wake
from windlass.core.errors import Unauthenticated
from windlass.core.rpc import tokens as tokens_module
from windlass.core.rpc.auth import Principal
from windlass.core.rpc.tokens import TokenAuthority

work = sa.Table(
    "test_work",
    sa.MetaData(),
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("done_by", sa.Text),
    *lease_columns(),
)
CALLER = Principal("org-a", "proj_a", "ann", "key_1", ("project_owner",), frozenset({"jobs.read"}))


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    made = Database(database_url)
    yield made
    await made.close()


async def test_a_gateway_signs_and_anyone_verifies(database: Database) -> None:
    gateway = TokenAuthority(database, kind="gateway", name="gateway")
    service = TokenAuthority(database, kind="service", name="jobs")
    await gateway.rotate()
    await service.rotate()
    assert await service.verify_principal(gateway.sign_principal(CALLER)) == CALLER
    assert await gateway.verify_service(service.sign_service()) == "jobs"


async def test_a_service_cannot_make_up_a_principal(database: Database) -> None:
    service = TokenAuthority(database, kind="service", name="jobs")
    await service.rotate()
    with pytest.raises(Unauthenticated):
        await service.verify_principal(service.sign_principal(CALLER))


async def test_a_token_serves_one_purpose(database: Database) -> None:
    gateway = TokenAuthority(database, kind="gateway", name="gateway")
    await gateway.rotate()
    with pytest.raises(Unauthenticated):
        await gateway.verify_principal(gateway.sign_service())
    with pytest.raises(Unauthenticated):
        await gateway.verify_service(gateway.sign_principal(CALLER))


async def test_a_forged_or_foreign_token_is_refused(database: Database) -> None:
    gateway = TokenAuthority(database, kind="gateway", name="gateway")
    await gateway.rotate()
    token = gateway.sign_principal(CALLER)
    head, body, signature = token.split(".")
    for forged in (f"{head}.{body}.{signature[:-4]}AAAA", f"{head}.{body}.", "nonsense", ""):
        with pytest.raises(Unauthenticated):
            await gateway.verify_principal(forged)
    stranger = TokenAuthority(database, kind="gateway", name="stranger")
    await stranger.rotate()
    async with database.begin() as connection:
        await connection.execute(tokens_module.keys.delete())
    with pytest.raises(Unauthenticated):
        await gateway.verify_principal(stranger.sign_principal(CALLER))


async def test_tokens_of_a_rotated_key_stay_good(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = TokenAuthority(database, kind="gateway", name="gateway")
    await gateway.rotate()
    old = gateway.sign_principal(CALLER)
    monkeypatch.setattr(gateway, "_rotate_at", 0.0)
    await gateway.rotate()
    assert gateway.sign_principal(CALLER) != old
    verifier = TokenAuthority(database, kind="service", name="verifier")
    assert await verifier.verify_principal(old) == CALLER


async def test_workers_share_rows_and_nothing_is_done_twice(database: Database) -> None:
    async with database.begin() as connection:
        await connection.run_sync(work.metadata.create_all)
        await connection.execute(work.insert(), [{"done_by": None}] * 200)
    applied: list[int] = []

    async def worker(name: str) -> None:
        while True:
            token, rows = await claim(database, work, work.c.done_by.is_(None), limit=7, seconds=30)
            if not rows:
                return
            for row in rows:
                async with database.begin() as connection:
                    done = await connection.execute(
                        work.update()
                        .where(work.c.id == row.id, held(work, token))
                        .values(done_by=name, **released())
                    )
                applied.extend([row.id] * done.rowcount)

    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(worker(f"w{number}"))
    assert sorted(applied) == sorted(set(applied))
    assert len(applied) == 200


async def test_a_lease_that_ran_out_applies_nothing(database: Database) -> None:
    async with database.begin() as connection:
        await connection.run_sync(work.metadata.create_all)
        await connection.execute(work.insert().values(done_by=None))
    slow, (row,) = await claim(database, work, sa.true(), limit=1, seconds=0)
    fast, (again,) = await claim(database, work, sa.true(), limit=1, seconds=30)
    assert row.id == again.id
    async with database.begin() as connection:
        update = work.update().where(work.c.id == row.id)
        late = await connection.execute(update.where(held(work, slow)).values(done_by="slow"))
        good = await connection.execute(update.where(held(work, fast)).values(done_by="fast"))
    assert (late.rowcount, good.rowcount) == (0, 1)


async def test_a_touch_wakes_another_process(database_url: str) -> None:
    here, there = Wake(database_url), Wake(database_url)
    listener = there.listen("jobs")
    other = there.listen("files")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(here.run()), group.create_task(there.run())]
        async with asyncio.timeout(20):
            await listener.wait(10)  # awake at first
            await other.wait(10)
            woken = asyncio.create_task(listener.wait(20))

            def touched() -> bool:
                here.touch("jobs")
                return woken.done()

            await until(touched)
        for task in tasks:
            task.cancel()


async def test_a_loop_survives_failures(database_url: str) -> None:
    rounds = 0
    finished = asyncio.Event()

    async def once() -> bool:
        nonlocal rounds
        rounds += 1
        if rounds < 3:
            raise RuntimeError("not yet")
        finished.set()
        return False

    loop = asyncio.create_task(run_loop("test", Wake(database_url).listen("x"), once))
    async with asyncio.timeout(PATIENCE):
        await finished.wait()
    loop.cancel()


async def test_a_loop_that_rests_only_asks_whether_it_may(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "REST_SECONDS", 0.01)
    seen: list[str] = []
    is_empty = True

    async def once() -> bool:
        seen.append("looked")
        return False

    async def resting() -> bool:
        seen.append("asked")
        return is_empty

    listener = Wake(database_url).listen("x")
    loop = asyncio.create_task(run_loop("test", listener, once, poll_seconds=0.01, resting=resting))
    await until(lambda: len(seen) > 2)
    assert seen[:3] == ["asked", "asked", "asked"], "nothing is there to look at"
    is_empty = False
    await until(lambda: seen[-2:] == ["asked", "looked"])
    is_empty = True
    await until(lambda: seen[-2:] == ["asked", "asked"])
    listener.set()
    await until(lambda: "looked" in seen[-3:])
    # Once more, after it was told that there is nothing, it looks.
    await until(lambda: seen[-2:] == ["asked", "asked"])
    loop.cancel()
    while seen[-1] == "asked":
        seen.pop()
    assert seen[-3:] == ["looked", "asked", "looked"]


async def test_questions_that_come_together_share_a_statement(database: Database) -> None:
    statements: list[str] = []

    def note(_: object, __: object, statement: str, *rest: object) -> None:
        statements.append(statement)

    async with database.begin() as connection:
        await connection.run_sync(work.metadata.create_all)
        await connection.execute(work.insert().values(done_by="ann"))
    nobodys = leases.no_rows(database, work.c.done_by == "bob", work.c.done_by == "eve")
    anns = leases.no_rows(database, work.c.done_by == "ann")
    sa.event.listen(database._reading.sync_engine, "before_cursor_execute", note)
    answers = await asyncio.gather(nobodys(), anns(), nobodys())
    assert list(answers) == [True, False, True]
    assert len(statements) == 1
    assert not await anns()
    assert len(statements) == 2


async def test_a_connection_that_the_server_ended_is_replaced_unseen(
    database_url: str, database: Database
) -> None:
    async def backends() -> set[int]:
        mine = sa.select(sa.func.pg_backend_pid())
        async with database.autocommit() as reading, database.begin() as writing:
            return {(await one.execute(mine)).scalar_one() for one in (reading, writing)}

    before = await backends()
    assert await backends() == before
    ended = sa.select(*(sa.func.pg_terminate_backend(pid, 5000) for pid in before))
    other = Database(database_url)
    async with other.autocommit() as connection:
        assert all((await connection.execute(ended)).one())
    await other.close()
    assert not await backends() & before
