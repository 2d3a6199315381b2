"""Artifacts of attempts: promised, then committed; the next attempt resumes from them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.db import Database
from windlass.core.errors import FailedPrecondition, InvalidArgument, NotFound
from windlass.core.ids import new_id
from windlass.jobs.domain.job import ArtifactKind, Checkpoint, Job
from windlass.jobs.domain.reports import MAX_STEP
from windlass.jobs.storage.tables import artifacts, checkpoints
from windlass.modelfiles.layout import MAX_FILE_BYTES, MAX_FILES

PATH_LENGTH = 256
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@=,-]{0,127}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of an artifact: relative path, bytes, raw SHA-256."""

    path: str
    size: int
    sha256: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A folder of files that an attempt uploads. `committed_at_ms` is 0 until all are there."""

    id: str
    job_id: str
    attempt: int
    kind: ArtifactKind
    step: int
    prefix: str
    manifest: tuple[Entry, ...]
    is_adapter: bool = False
    created_at_ms: int = 0
    committed_at_ms: int = 0
    purged_at_ms: int = 0


def valid_manifest(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Relative, plain, distinct paths with sizes and digests; raises InvalidArgument."""
    if not 1 <= len(entries) <= MAX_FILES:
        raise InvalidArgument(f"An artifact must have 1 to {MAX_FILES} files.", param="manifest")
    ordered = tuple(sorted(entries, key=lambda entry: entry.path))
    for entry in ordered:
        segments = entry.path.split("/")
        plain = all(_SEGMENT.fullmatch(segment) for segment in segments)
        if not plain or len(segments) > 8 or len(entry.path) > PATH_LENGTH:
            raise InvalidArgument(
                f"{entry.path[:80]!r} is not a plain relative path.", param="manifest"
            )
        if not 0 <= entry.size <= MAX_FILE_BYTES or len(entry.sha256) != 32:
            raise InvalidArgument(
                f"{entry.path!r} needs a SHA-256 and at most 5 GiB.", param="manifest"
            )
    if len({entry.path for entry in ordered}) != len(ordered):
        raise InvalidArgument("The same path appears twice.", param="manifest")
    return ordered


def new_artifact(
    job: Job, kind: ArtifactKind, *, step: int, manifest: tuple[Entry, ...], now: int
) -> Artifact:
    """Makes an artifact of the job's present attempt, in a folder of its own."""
    if not 0 <= step <= MAX_STEP:
        raise InvalidArgument("step must be the number of a training step.", param="step")
    name = kind.name.lower().replace("_", "-")
    return Artifact(
        id=new_id("artifact_"),
        job_id=job.id,
        attempt=job.attempt,
        kind=kind,
        step=step,
        prefix=f"artifacts/{job.project_id}/{job.id}/{job.attempt}/{name}-{step}/",
        manifest=manifest,
        created_at_ms=now,
    )


class ArtifactStore:
    """Artifacts and checkpoints. Callers that pass a connection hold the job's row."""

    def __init__(self, database: Database):
        self._database = database

    async def promise(
        self, connection: AsyncConnection, artifact: Artifact
    ) -> tuple[Artifact, bool]:
        """Stores what will be uploaded; a repeat answers the first promise and False.

        A promise that was not kept may be made anew with other files. Raises
        FailedPrecondition `artifact_committed` for other files once it was kept.
        """
        same = sa.and_(
            artifacts.c.job_id == artifact.job_id,
            artifacts.c.attempt == artifact.attempt,
            artifacts.c.kind == int(artifact.kind),
            artifacts.c.step == artifact.step,
        )
        row = (await connection.execute(artifacts.select().where(same))).first()
        if row is None:
            await connection.execute(artifacts.insert().values(_values(artifact)))
            return artifact, True
        known = _artifact(row)
        if known.manifest == artifact.manifest:
            return known, False
        if known.committed_at_ms:
            raise FailedPrecondition(
                "The artifact was already committed with other files.", reason="artifact_committed"
            )
        await connection.execute(artifacts.delete().where(artifacts.c.id == known.id))
        await connection.execute(artifacts.insert().values(_values(artifact)))
        return artifact, True

    async def get(self, job_id: str, attempt: int, artifact_id: str) -> Artifact:
        """An artifact of the attempt; raises NotFound."""
        query = artifacts.select().where(
            artifacts.c.id == artifact_id,
            artifacts.c.job_id == job_id,
            artifacts.c.attempt == attempt,
        )
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            raise NotFound(f"No such artifact: {artifact_id[:64]!r}.", param="artifact_id")
        return _artifact(row)

    async def commit(
        self, connection: AsyncConnection, artifact: Artifact, *, is_adapter: bool, now: int
    ) -> bool:
        """Marks an artifact as whole; whether this call did."""
        statement = (
            artifacts.update()
            .where(artifacts.c.id == artifact.id, artifacts.c.committed_at_ms == 0)
            .values(committed_at_ms=now, is_adapter=is_adapter)
        )
        return (await connection.execute(statement)).rowcount == 1

    async def add_checkpoint(self, connection: AsyncConnection, checkpoint: Checkpoint) -> bool:
        """Lists a checkpoint; False when an earlier attempt committed one of that step."""
        values = {name: getattr(checkpoint, name) for name in Checkpoint.__slots__}
        statement = insert(checkpoints).values(values).on_conflict_do_nothing()
        added = await connection.execute(statement.returning(checkpoints.c.id))
        return added.first() is not None

    async def checkpoints(self, job_id: str) -> Sequence[Checkpoint]:
        """The job's listed checkpoints."""
        query = checkpoints.select().where(checkpoints.c.job_id == job_id)
        async with self._database.autocommit() as connection:
            rows = await connection.execute(query)
            return [
                Checkpoint(**{name: getattr(row, name) for name in Checkpoint.__slots__})
                for row in rows
            ]

    async def is_listed(self, artifact: Artifact) -> bool:
        """Returns True if the artifact is listed as a checkpoint of its job."""
        query = sa.select(sa.exists().where(checkpoints.c.artifact_id == artifact.id))
        async with self._database.autocommit() as connection:
            return bool((await connection.execute(query)).scalar_one())

    async def unlist(self, checkpoint: Checkpoint, now: int) -> None:
        """Takes a checkpoint from the list, whose files are gone or going."""
        async with self._database.begin() as connection:
            await connection.execute(checkpoints.delete().where(checkpoints.c.id == checkpoint.id))
            await connection.execute(
                artifacts.update()
                .where(artifacts.c.id == checkpoint.artifact_id)
                .values(purged_at_ms=now)
            )

    async def resumable_steps(self, job_id: str) -> frozenset[int]:
        """Steps whose training state is kept."""
        query = sa.select(artifacts.c.step).where(
            artifacts.c.job_id == job_id,
            artifacts.c.kind == int(ArtifactKind.TRAINING_STATE),
            artifacts.c.committed_at_ms > 0,
            artifacts.c.purged_at_ms == 0,
        )
        async with self._database.autocommit() as connection:
            return frozenset((await connection.execute(query)).scalars())

    async def committed(
        self, connection: AsyncConnection, job: Job, kind: ArtifactKind
    ) -> Artifact | None:
        """The attempt's latest committed artifact of a kind."""
        query = (
            artifacts.select()
            .where(
                artifacts.c.job_id == job.id,
                artifacts.c.attempt == job.attempt,
                artifacts.c.kind == int(kind),
                artifacts.c.committed_at_ms > 0,
            )
            .order_by(artifacts.c.step.desc())
            .limit(1)
        )
        row = (await connection.execute(query)).first()
        return None if row is None else _artifact(row)

    async def by_id(self, artifact_id: str) -> Artifact | None:
        """An artifact of any job, for the handlers of effects."""
        query = artifacts.select().where(artifacts.c.id == artifact_id)
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        return None if row is None else _artifact(row)

    async def resume_point(self, job: Job) -> tuple[Artifact, Artifact | None] | None:
        """The furthest training state of an earlier attempt, and the weights of its step."""
        query = (
            artifacts.select()
            .where(
                artifacts.c.job_id == job.id,
                artifacts.c.attempt < job.attempt,
                artifacts.c.committed_at_ms > 0,
                artifacts.c.purged_at_ms == 0,
            )
            .order_by(artifacts.c.step.desc(), artifacts.c.attempt.desc())
        )
        async with self._database.autocommit() as connection:
            found = [_artifact(row) for row in await connection.execute(query)]
        weights = {
            (artifact.attempt, artifact.step): artifact
            for artifact in found
            if artifact.kind is ArtifactKind.CHECKPOINT
        }
        for artifact in found:
            if artifact.kind is ArtifactKind.TRAINING_STATE:
                return artifact, weights.get((artifact.attempt, artifact.step))
        return None

    async def purgeable(self, job_id: str, *, below_step: int | None) -> Sequence[Artifact]:
        """Training states below a step, or all of them, and what was promised in vain.

        With each state go the weights of its step that no checkpoint lists: a later attempt
        that passes a step again saves weights of its own to resume from.
        """
        listed = sa.select(checkpoints.c.artifact_id).where(checkpoints.c.job_id == job_id)
        states = sa.or_(
            artifacts.c.kind == int(ArtifactKind.TRAINING_STATE),
            sa.and_(
                artifacts.c.kind == int(ArtifactKind.CHECKPOINT),
                artifacts.c.id.not_in(listed),
            ),
        )
        if below_step is None:
            useless = sa.or_(states, artifacts.c.committed_at_ms == 0)
        else:
            useless = sa.and_(
                states, artifacts.c.step < below_step, artifacts.c.committed_at_ms > 0
            )
        query = artifacts.select().where(
            artifacts.c.job_id == job_id, artifacts.c.purged_at_ms == 0, useless
        )
        async with self._database.autocommit() as connection:
            return [_artifact(row) for row in await connection.execute(query)]

    async def purged(self, artifact: Artifact, now: int) -> None:
        """Notes that an artifact's files are gone."""
        async with self._database.begin() as connection:
            await connection.execute(
                artifacts.update().where(artifacts.c.id == artifact.id).values(purged_at_ms=now)
            )


def _values(artifact: Artifact) -> dict[str, object]:
    values: dict[str, object] = {name: getattr(artifact, name) for name in Artifact.__slots__}
    values["kind"] = int(artifact.kind)
    values["manifest"] = [
        [entry.path, entry.size, entry.sha256.hex()] for entry in artifact.manifest
    ]
    return values


def _artifact(row: sa.Row[tuple[object, ...]]) -> Artifact:
    values = {name: getattr(row, name) for name in Artifact.__slots__}
    values["kind"] = ArtifactKind(values["kind"])
    values["manifest"] = tuple(
        Entry(path, size, bytes.fromhex(digest)) for path, size, digest in values["manifest"]
    )
    return Artifact(**values)
