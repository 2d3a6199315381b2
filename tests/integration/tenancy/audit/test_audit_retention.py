"""Old events are dropped up to a checkpoint, and what is left is as provable as before."""

import io
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.integration.tenancy.audit.test_audit_chain import event
from tests.integration.tenancy.audit.test_audit_checkpoints import ORGANIZATION, Log, faults

from windlass.audit_chain.checkpoints import CheckpointKey
from windlass.audit_chain.exported import checkpoint_line, dropped_line, event_line, verify_file
from windlass.core.clock import now_ms
from windlass.core.config import ObjectsSection
from windlass.core.db import Database
from windlass.core.errors import FailedPrecondition, InvalidArgument
from windlass.core.keyring import Envelope
from windlass.core.objects import open_store
from windlass.core.rpc import audited
from windlass.rbac import retention as module
from windlass.rbac.exports.destinations import Destination
from windlass.rbac.exports.store import DestinationStore
from windlass.rbac.retention import AuditRetention


class Notes:
    """What the retention says of itself, where a queue would write it to the log."""

    def __init__(self) -> None:
        self.found: list[tuple[str, Any]] = []

    def note(self, organization_id: str, project_id: str, action: str, said: Any) -> None:
        self.found.append((action, said.before))


class Kept(Log):
    """The audit log of a test with a retention of a day, and an attacker."""

    def __init__(self, database: Database, *args: Any):
        super().__init__(database, *args)
        self.database = database
        self.notes: Any = Notes()
        self.retention = self.keeping(1)

    def keeping(self, days: int) -> AuditRetention:
        return AuditRetention(self.database, self.audit, self.checkpoints, self.notes, days=days)

    async def drop(self) -> None:
        """Looks as often as there may be more."""
        self.attack("UPDATE rbac_audit_chains SET retained_at = 0")
        while await self.retention.once():
            pass

    async def left(self) -> list[int]:
        return [one["sequence"] for one in await self.audit.following(ORGANIZATION, 0, limit=1000)]

    async def exported(self) -> bytes:
        """A file as `windlass audit export` writes it."""
        dropped = await self.checkpoints.dropped(ORGANIZATION)
        made = [dropped_line(dropped[0])] if dropped else []
        for one in await self.checkpoints.sequences(ORGANIZATION):
            made.append(checkpoint_line(await self.checkpoints.text(ORGANIZATION, one)))
        for row in await self.audit.following(ORGANIZATION, 0, limit=1000):
            digest = row.pop("hash")
            made.append(event_line(row, digest.hex()))
        return b"".join(made)


@pytest.fixture
async def log(database_url: str, tmp_path: Path) -> AsyncIterator[Kept]:
    database = Database(database_url, pool_size=8)
    objects = open_store(
        ObjectsSection(), root=tmp_path / "objects", public_url="http://x", signing_secret=b"s"
    )
    log = Kept(database, database_url, objects, tmp_path / "objects")
    await log.grow(10)
    await log.grow(10)
    yield log
    await objects.close()
    await database.close()


async def grow_young(log: Kept) -> None:
    """Adds an event of now, and one that was recorded late."""
    young = event("young", ORGANIZATION) | {"at_ms": now_ms()}
    await log.chains.append([young, event("late", ORGANIZATION)])


async def test_what_is_old_is_dropped_and_the_rest_is_right(log: Kept) -> None:
    await log.grow(5)
    await grow_young(log)
    await log.grow(5)
    assert await log.checkpoints.sequences(ORGANIZATION) == [10, 20, 25, 32]
    await log.drop()
    # What comes after a young event is kept, however old it says to be.
    assert await log.left() == [*range(26, 33)]
    assert log.notes.found == [("audit/drop", {"first": 1, "last": 25, "days": 1})]
    assert await log.found() is None
    verdict = await log.verifier.verify(ORGANIZATION, after=0, events=100)
    assert (verdict.dropped_sequence, verdict.sequence, verdict.checkpoint_sequence) == (25, 32, 32)
    # The chain goes on, and is signed.
    await log.grow(3)
    assert await log.checkpoints.sequences(ORGANIZATION) == [10, 20, 25, 32, 35]
    assert await log.found() is None
    with pytest.raises(InvalidArgument):
        await log.verifier.verify(ORGANIZATION, after=24, events=1)


async def test_nothing_beyond_a_checkpoint_is_dropped(log: Kept) -> None:
    await log.chains.append([event("more", ORGANIZATION)])
    await log.drop()
    assert await log.left() == [21]
    await log.drop()
    assert await log.left() == [21]


async def test_a_log_without_a_checkpoint_is_kept(log: Kept) -> None:
    await log.chains.append([event("other", "org_other")])
    await log.drop()
    assert len(await log.audit.following("org_other", 0, limit=10)) == 1


async def test_what_a_destination_has_not_got_is_kept(log: Kept) -> None:
    store = DestinationStore(log.database, Envelope([bytes(32)]))
    made = Destination("d_1", ORGANIZATION, "d", "webhook", "https://x.org", "", "", "", "", 1)
    await store.create(made, b"s", from_now=False)
    await log.drop()
    assert len(await log.left()) == 20
    log.attack("UPDATE rbac_audit_destinations SET sequence = 15")
    await log.drop()
    assert await log.left() == [*range(11, 21)]
    # One that is made now begins with what there is.
    await store.create(replace(made, id="d_2"), b"s", from_now=False)
    rows = {row.id: row.sequence for row in await store.list(ORGANIZATION, limit=10)}
    assert rows == {"d_1": 15, "d_2": 10}


async def test_an_organization_keeps_its_own_longer_and_not_shorter(log: Kept) -> None:
    with pytest.raises(InvalidArgument):
        await log.keeping(30).put(ORGANIZATION, 29)
    with pytest.raises(FailedPrecondition):
        await log.keeping(0).put(ORGANIZATION, 30)
    audited.enter()
    await log.retention.put(ORGANIZATION, 36_500)
    assert audited.noted()[0].after == {"days": 36_500}
    assert await log.retention.get(ORGANIZATION) == (36_500, 0)
    await log.drop()
    assert len(await log.left()) == 20
    await log.retention.put(ORGANIZATION, 0)
    await log.drop()
    assert await log.left() == []
    await log.keeping(0).put("org_new", 0)
    assert await log.keeping(0).once() is False


async def test_an_exported_file_of_what_is_left_is_right(log: Kept) -> None:
    await log.grow(5)
    before = await log.exported()
    await grow_young(log)
    await log.drop()
    text = await log.exported()
    key = log.checkpoints.key
    verdict = verify_file(io.BytesIO(text), key)
    assert verdict.fault is None
    assert (verdict.dropped_sequence, verdict.sequence, verdict.organization_id) == (
        25, 27, ORGANIZATION,
    )  # fmt: skip
    lines = text.splitlines(keepends=True)
    for damaged in (lines[1:], [lines[0], *lines[:0:-1]], [*lines[:4], *lines[5:]]):
        assert verify_file(damaged, key).fault
    forged = CheckpointKey.derived(bytes(32))
    note = await log.checkpoints.dropped(ORGANIZATION)
    assert note
    false = dropped_line(forged.sign(note[1], dropped=True))
    (found,) = [verify_file([false, *lines[1:]], key).fault]
    assert found
    assert found.kind == "forged_checkpoint"
    # A checkpoint is no such note.
    plain = dropped_line(key.sign(note[1]))
    assert verify_file([plain, *lines[1:]], key).fault
    assert verify_file(io.BytesIO(before), key).fault is None


@pytest.mark.parametrize(
    ("attack", "found"),
    [
        ("DELETE FROM rbac_audit_events WHERE sequence <= 15", (11, "removed")),
        ("DELETE FROM rbac_audit_events WHERE sequence <= 15;"
         "UPDATE rbac_audit_chains SET dropped_sequence = 15", (11, "removed")),
        ("UPDATE rbac_audit_chains SET dropped_sequence = 20;"
         "DELETE FROM rbac_audit_events WHERE sequence <= 20", (11, "cut_off")),
        ("UPDATE rbac_audit_events SET user_id = 'eve' WHERE sequence = 11", (11, "changed")),
    ],
)  # fmt: skip
async def test_what_somebody_else_drops_is_found(
    log: Kept, attack: str, found: tuple[int, str]
) -> None:
    log.attack("UPDATE rbac_audit_events SET at_ms = at_ms")
    with psycopg.connect(log.url) as connection:
        connection.execute(
            "INSERT INTO rbac_audit_destinations VALUES ('d', %s, '', '', '', '', '', '', '', '',"
            " 0, 10, 0, 0, '', 0)",
            (ORGANIZATION,),
        )
    await log.drop()
    assert await log.left() == [*range(11, 21)]
    log.attack(attack)
    log.attack("DELETE FROM rbac_audit_destinations")
    assert await log.found() == found
    before = faults()
    await log.drop()
    # Nothing is dropped over it, so that it stays to be found.
    assert await log.found() == found
    # Where nothing is left, nobody looks.
    assert faults() == before + bool(await log.left())


async def test_the_note_of_what_was_dropped_is_signed(log: Kept) -> None:
    await log.drop()
    (place,) = log.folder.rglob("audit_dropped/**/*.jws")
    kept = place.read_bytes()
    for forged in (b"", b"a.b.c", kept[:-4] + b"AAAA"):
        place.write_bytes(forged)
        assert await log.found() == (1, "forged_checkpoint")
    place.unlink()
    assert await log.found() == (1, "cut_off")


@pytest.mark.parametrize("after_note", [True, False])
async def test_a_process_that_dies_on_the_way_is_followed_up(
    log: Kept, monkeypatch: pytest.MonkeyPatch, after_note: bool
) -> None:
    async def die(*_: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        if after_note:
            patched.setattr(module, "_may_drop", die)
        else:
            patched.setattr(log.notes, "note", lambda *_: (_ for _ in ()).throw(RuntimeError()))
        with pytest.raises(RuntimeError):
            await log.drop()
    assert len(await log.left()) == 20
    assert await log.found() is None
    log.attack("UPDATE rbac_audit_chains SET lease_until = NULL")
    await log.drop()
    assert await log.left() == []
    assert await log.found() is None
    await log.grow(2)
    assert await log.found() is None
