"""Appending to the audit log: one chain for each organization, whoever appends at once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from alembic import command
from tests.support.environments import postgres

from windlass.audit_chain.walk import ChainWalk
from windlass.core.db import Database
from windlass.migrations import config, migrate
from windlass.rbac.chains import AuditChains
from windlass.rbac.tables import STORED, audit_chains, audit_events


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url, pool_size=8)
    yield database
    await database.close()


def event(name: str, organization: str = "org_a") -> dict[str, Any]:
    return {
        "id": f"audit_{name}", "at_ms": 1, "organization_id": organization, "action": "s/Do",
        "outcome": "OK",
    }  # fmt: skip


async def chain(database: Database, organization: str = "org_a") -> list[str]:
    """The ids of a chain, which must be right, with its head."""
    query = audit_events.select().where(audit_events.c.organization_id == organization)
    head = audit_chains.select().where(audit_chains.c.id == organization)
    async with database.autocommit() as connection:
        rows = (await connection.execute(query.order_by(audit_events.c.sequence))).all()
        ends = (await connection.execute(head)).all()
    walk = ChainWalk(organization)
    stored = [({name: getattr(row, name) for name in STORED}, row.hash) for row in rows]
    assert walk.follow(stored) is None
    assert [(one.sequence, one.hash) for one in ends] == [(walk.sequence, walk.hash)]
    return [row.id for row in rows]


async def test_replicas_that_append_at_once_make_one_chain(database: Database) -> None:
    replicas = [AuditChains(database) for _ in range(3)]
    # Both orders of organizations in a batch, which must not wait for each other.
    batches = [
        [event(f"{batch}-{n}", f"org_{'ab'[(n + batch) % 2]}") for n in range(20)]
        for batch in range(12)
    ]
    await asyncio.gather(
        *(replica.append(batch) for batch in batches for replica in replicas[:2]),
        *(replicas[2].append(reversed(batch)) for batch in batches),
    )
    told = [*await chain(database, "org_a"), *await chain(database, "org_b")]
    assert sorted(told) == sorted(one["id"] for batch in batches for one in batch)


async def test_an_event_that_comes_again_is_one(database: Database) -> None:
    chains = AuditChains(database)
    await chains.append([event("1"), event("2"), event("1")])
    await chains.append([event("2"), event("3")])
    await chains.append([])
    assert await chain(database) == ["audit_1", "audit_2", "audit_3"]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE rbac_audit_events SET resource = 'x'",
        "DELETE FROM rbac_audit_events",
        "UPDATE rbac_audit_chains SET dropped_sequence = 0; DELETE FROM rbac_audit_events",
        "TRUNCATE rbac_audit_events",
        "INSERT INTO rbac_audit_events SELECT * FROM rbac_audit_events ON CONFLICT (id)"
        " DO UPDATE SET resource = 'x'",
    ],
)
async def test_the_database_lets_nothing_be_changed(
    database: Database, database_url: str, statement: str
) -> None:
    await AuditChains(database).append([event("1")])
    plain = database_url.replace("+psycopg", "")
    with (
        psycopg.connect(plain) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege, match="append-only"),
    ):
        connection.execute(statement.encode())
    assert await chain(database) == ["audit_1"]


_ERASE = "UPDATE rbac_audit_events SET before = '', after = '', details_salt = ''"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE rbac_audit_events SET before = '', after = ''",
        "UPDATE rbac_audit_events SET before = '', after = 'x', details_salt = ''",
        f"{_ERASE}, details_digest = ''",
        f"{_ERASE}, user_id = 'eve'",
    ],
)
async def test_details_are_erased_whole_and_alone(database: Database, statement: str) -> None:
    chains = AuditChains(database)
    told = event("1") | {"before": '{"title":"a"}', "after": '{"title":"b"}'}
    await chains.append([told, event("2"), told])
    await chains.append([told])
    with pytest.raises(sa.exc.ProgrammingError, match="append-only"):
        async with database.begin() as connection:
            await connection.execute(sa.text(statement))
    async with database.begin() as connection:
        query = audit_events.select().order_by(audit_events.c.sequence)
        first, second = (await connection.execute(query)).all()
        await connection.execute(sa.text(_ERASE))
        erased = (await connection.execute(query)).first()
    assert (second.details_salt, second.details_digest) == ("", "")
    assert (len(first.details_salt), len(first.details_digest)) == (32, 64)
    none = {"before": "", "after": "", "details_salt": ""}
    assert erased is not None
    assert erased._asdict() == first._asdict() | none
    assert await chain(database) == ["audit_1", "audit_2"]


async def test_events_of_before_are_the_beginning_of_the_chain(postgres_url: str) -> None:
    with postgres.fresh_database(postgres_url) as url:
        command.upgrade(config(url), "202611272340")
        engine = sa.create_engine(url)
        old = sa.text(
            "INSERT INTO rbac_audit_events (id, at_ms, organization_id, project_id, user_id,"
            " key_id, action, resource, outcome, request_id)"
            " VALUES (:id, 5, :organization_id, '', 'é\n', '', :action, '', :outcome, '')"
        )
        with engine.begin() as connection:
            for number in range(6):
                connection.execute(old, event(f"{number}", f"org_{'ab'[number % 2]}"))
        migrate(url)
        database = Database(url, pool_size=4)
        await AuditChains(database).append([event("new")])
        assert await chain(database, "org_a") == ["audit_0", "audit_2", "audit_4", "audit_new"]
        assert await chain(database, "org_b") == ["audit_1", "audit_3", "audit_5"]
        await database.close()
        await asyncio.to_thread(command.downgrade, config(url), "202611272340")
        with engine.begin() as connection:
            connection.execute(old, event("older", "org_a"))
            found = connection.execute(
                sa.text("SELECT count(DISTINCT sequence), max(sequence) FROM rbac_audit_events")
            )
            assert tuple(found.one()) == (8, 8)
        await asyncio.to_thread(migrate, url)
        engine.dispose()
