"""Checkpoints find what was done to the log by whoever can write the database."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.integration.tenancy.audit.test_audit_chain import event

from windlass.audit_chain.checkpoints import CheckpointKey
from windlass.audit_chain.links import link
from windlass.audit_chain.walk import ChainCheckpoint, ChainFault, CheckpointForged
from windlass.core.config import ObjectsSection
from windlass.core.db import Database
from windlass.core.objects import ObjectStore, open_store
from windlass.metrics.rbac import AUDIT_FAULTS
from windlass.rbac.chains import AuditChains
from windlass.rbac.checkpoints import CheckpointSigner, CheckpointStore
from windlass.rbac.store import AuditStore
from windlass.rbac.tables import CHAINED, EMPTY
from windlass.rbac.verification import AuditVerifier

ORGANIZATION = "org_a"


class Log:
    """The audit log of a test, and an attacker who owns its database."""

    def __init__(self, database: Database, url: str, objects: ObjectStore, folder: Path):
        self.chains = AuditChains(database)
        self.audit = AuditStore(database)
        self.checkpoints = CheckpointStore(objects, CheckpointKey.derived(bytes(range(32))))
        self.signer = CheckpointSigner(database, self.audit, self.checkpoints)
        self.verifier = AuditVerifier(self.audit, self.checkpoints)
        self.folder = folder
        self.url = url.replace("+psycopg", "")
        self._made = 0

    async def grow(self, events: int) -> None:
        """Appends so many, and signs a checkpoint."""
        numbers = range(self._made, self._made + events)
        self._made += events
        await self.chains.append([event(str(number), ORGANIZATION) for number in numbers])
        self.attack("UPDATE rbac_audit_chains SET checkpoint_at = 0")
        await self.signer.once()

    def attack(self, statement: str) -> None:
        """Runs as the owner of the tables, for whom no trigger holds."""
        with psycopg.connect(self.url) as connection:
            connection.execute("ALTER TABLE rbac_audit_events DISABLE TRIGGER USER")
            connection.execute(statement.encode())
            connection.execute("ALTER TABLE rbac_audit_events ENABLE TRIGGER USER")

    def rewrite(self, sequence: int) -> None:
        """Changes an event, and makes every hash from it on anew, with the head."""
        with psycopg.connect(self.url) as connection:
            connection.execute("ALTER TABLE rbac_audit_events DISABLE TRIGGER USER")
            names = ", ".join(CHAINED)
            rows = connection.execute(
                f"SELECT {names}, hash FROM rbac_audit_events ORDER BY sequence".encode()
            ).fetchall()
            previous = rows[sequence - 2][-1]
            for row in rows[sequence - 1 :]:
                said = dict(zip(CHAINED, row, strict=False)) | {"resource": "another"}
                previous = link(previous, said)
                connection.execute(
                    "UPDATE rbac_audit_events SET resource = 'another', hash = %s"
                    " WHERE sequence = %s",
                    (previous, said["sequence"]),
                )
            connection.execute("UPDATE rbac_audit_chains SET hash = %s", (previous,))
            connection.execute("ALTER TABLE rbac_audit_events ENABLE TRIGGER USER")

    async def fault(self, *, events: int = 7) -> ChainFault | None:
        """Of a verification in parts, as a command asks for them."""
        after, more = 0, True
        while more:
            verdict = await self.verifier.verify(ORGANIZATION, after=after, events=events)
            if verdict.fault is not None:
                return verdict.fault
            after, more = verdict.sequence, verdict.has_more
        return None

    async def found(self) -> tuple[int, str] | None:
        fault = await self.fault()
        return None if fault is None else (fault.sequence, fault.kind)


@pytest.fixture
async def log(database_url: str, tmp_path: Path) -> AsyncIterator[Log]:
    database = Database(database_url, pool_size=8)
    objects = open_store(
        ObjectsSection(), root=tmp_path / "objects", public_url="http://x", signing_secret=b"s"
    )
    log = Log(database, database_url, objects, tmp_path / "objects")
    await log.grow(10)
    await log.grow(10)
    yield log
    await objects.close()
    await database.close()


async def test_a_log_that_nobody_touched_is_right(log: Log) -> None:
    assert await log.found() is None
    assert await log.checkpoints.sequences(ORGANIZATION) == [10, 20]
    await log.chains.append([event("more", ORGANIZATION)])
    assert await log.found() is None
    verdict = await log.verifier.verify(ORGANIZATION, after=0, events=100)
    assert (verdict.sequence, verdict.checkpoint_sequence, verdict.has_more) == (21, 20, False)
    nobody = await log.verifier.verify("org_none", after=0, events=10)
    assert (nobody.sequence, nobody.fault) == (0, None)
    # Not before there are more events, or some time has gone by.
    assert await log.signer.once() is False


_COPY = ", ".join(("id || 'x'", *CHAINED[1:-1]))


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("UPDATE rbac_audit_events SET user_id = 'eve' WHERE sequence = 6", (6, "changed")),
        ("UPDATE rbac_audit_events SET hash = hash || 'x' WHERE sequence = 6", (6, "changed")),
        ("DELETE FROM rbac_audit_events WHERE sequence = 6", (6, "removed")),
        (
            "UPDATE rbac_audit_events SET sequence = -sequence WHERE sequence IN (6, 7);"
            "UPDATE rbac_audit_events SET sequence = 13 + sequence WHERE sequence < 0",
            (6, "changed"),
        ),
        (
            "UPDATE rbac_audit_events SET sequence = -sequence WHERE sequence > 5;"
            "UPDATE rbac_audit_events SET sequence = 1 - sequence WHERE sequence < 0;"
            f"INSERT INTO rbac_audit_events ({', '.join(CHAINED)}, hash)"
            f" SELECT {_COPY}, 6, hash FROM rbac_audit_events WHERE sequence = 5",
            (6, "changed"),
        ),
        (
            f"INSERT INTO rbac_audit_events ({', '.join(CHAINED)}, hash)"
            f" SELECT {_COPY}, 21, hash FROM rbac_audit_events WHERE sequence = 5",
            (21, "changed"),
        ),
        ("DELETE FROM rbac_audit_events WHERE sequence > 15", (16, "cut_off")),
        (
            "DELETE FROM rbac_audit_events WHERE sequence > 15;"
            "UPDATE rbac_audit_chains SET sequence = 15, hash = (SELECT hash FROM"
            " rbac_audit_events WHERE sequence = 15)",
            (16, "cut_off"),
        ),
        ("DELETE FROM rbac_audit_events", (1, "cut_off")),
        ("UPDATE rbac_audit_events SET after = '{}' WHERE sequence = 6", (6, "changed")),
    ],
)  # fmt: skip
async def test_an_attack_in_the_database_is_found(
    log: Log, statement: str, found: tuple[int, str]
) -> None:
    log.attack(statement)
    assert await log.found() == found


async def test_an_event_that_its_head_does_not_know_was_slipped_in(log: Log) -> None:
    """Its hash is right: whoever can write the database can make that."""
    digest = await log.audit.hash_of(ORGANIZATION, 20)
    assert digest is not None
    row = EMPTY | event("forged", ORGANIZATION) | {"sequence": 21}
    columns = [*row, "hash"]
    made = [*row.values(), link(digest, row)]
    with psycopg.connect(log.url) as connection:
        connection.execute(
            sql.SQL("INSERT INTO rbac_audit_events ({}) VALUES ({})").format(
                sql.SQL(", ").join(map(sql.Identifier, columns)),
                sql.SQL(", ").join([sql.Placeholder()] * len(columns)),
            ),
            made,
        )
    assert await log.found() == (21, "slipped_in")


async def test_hashes_made_anew_differ_from_a_checkpoint(log: Log) -> None:
    log.rewrite(14)
    assert await log.found() == (11, "rewritten")
    # Nor does another checkpoint make it good.
    await log.grow(3)
    assert await log.checkpoints.sequences(ORGANIZATION) == [10, 20]
    assert await log.found() == (11, "rewritten")


def faults() -> float:
    (counted,) = AUDIT_FAULTS.collect()
    return float(counted.samples[0].value)


async def test_no_checkpoint_is_signed_over_a_fault(log: Log) -> None:
    await log.chains.append([event("a", ORGANIZATION), event("b", ORGANIZATION)])
    log.rewrite(22)
    log.attack("UPDATE rbac_audit_events SET user_id = 'eve' WHERE sequence = 21")
    before = faults()
    await log.grow(1)
    assert faults() == before + 1
    assert await log.checkpoints.sequences(ORGANIZATION) == [10, 20]
    assert await log.found() == (21, "changed")


async def test_a_forged_checkpoint_is_none(log: Log) -> None:
    stranger = CheckpointKey.derived(bytes(32))
    true = await log.checkpoints.text(ORGANIZATION, 20)
    checkpoint = await log.checkpoints.read(ORGANIZATION, 20)
    key = log.checkpoints.key
    foreign = key.sign(replace(checkpoint, organization_id="org_b", sequence=30))
    head, _, rest = true.partition(".")
    forged = [
        stranger.sign(replace(checkpoint, sequence=30)), foreign, true, "", "a.b.c",
        json.dumps({"sequence": 30}), f"{head}.{rest[:-4]}AAAA",
        "eyJhbGciOiJub25lIn0." + true.split(".")[1] + ".",
    ]  # fmt: skip
    place = next(log.folder.rglob(f"{20:020d}.jws"))
    for text in forged:
        (place.parent / f"{30:020d}.jws").write_text(text)
        assert await log.found() == (1, "forged_checkpoint")
        with pytest.raises(CheckpointForged):
            await log.checkpoints.read(ORGANIZATION, 30)
    (place.parent / f"{30:020d}.jws").unlink()
    for name in ("notes.txt", f"{10**20 - 1}.jws", "1.jws"):
        (place.parent / name).write_text("x")
    assert await log.found() is None


def test_a_public_key_verifies_and_does_not_sign() -> None:
    pair = CheckpointKey.derived(b"k" * 32)
    public = CheckpointKey.public(pair.jwk)
    made = ChainCheckpoint("org_a", 3, b"h" * 32, 5)
    assert public.verify(pair.sign(made), organization_id="org_a") == made
    assert "d" not in pair.jwk
    wrong: list[Any] = [{}, {"kty": "OKP"}, {"kty": "oct", "k": "AA"}, {"kty": "RSA"}]
    for jwk in wrong:
        with pytest.raises(ValueError, match="no public key"):
            CheckpointKey.public(jwk)
