"""Starts, watches and stops the private Postgres of one data folder."""

import asyncio
import fcntl
import os
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import psycopg

from windlass.core import telemetry
from windlass.core.backoff import Backoff
from windlass.embedded_postgres.cluster import ADMIN, DATABASE, ROLE, ensure_cluster, write_settings
from windlass.embedded_postgres.errors import PostgresError
from windlass.embedded_postgres.place import PORT, Place, find_place
from windlass.embedded_postgres.postmaster import Postmaster

log = telemetry.logger("postgres")
_STABLE_SECONDS = 60.0
_ADOPT_SECONDS = 20.0


class EmbeddedPostgres:
    """One Postgres under `data`, which one process at a time may run.

    `settings` are added to its configuration. All methods raise PostgresError.
    """

    def __init__(self, data: Path, *, settings: Mapping[str, str] | None = None):
        self._data = data
        self._settings = dict(settings or {})
        self._place: Place | None = None
        self._postmaster: Postmaster | None = None
        self._lock: int | None = None

    async def start(self) -> str:
        """Makes the cluster when there is none, serves it, and returns SQLAlchemy's URL."""
        began = time.monotonic()
        try:
            place = self._place = await asyncio.to_thread(self._prepare)
            adopted = await self._adopt(place)
            if not adopted:
                await self._launch(place)
            await _ensure_database(place)
        except OSError as error:
            await self.stop()
            raise PostgresError(f"The database under {self._data} cannot start: {error}") from error
        except BaseException:
            await self.stop()
            raise
        log.info(
            "postgres_ready",
            adopted=adopted,
            seconds=round(time.monotonic() - began, 3),
            home=str(place.home),
        )
        return _url(place)

    def running(self) -> str:
        """SQLAlchemy's URL of a server that runs already, of whichever process; or nothing."""
        if not self._data.is_dir():
            return ""
        place = find_place(self._data.resolve())
        return _url(place) if Postmaster.find(place) else ""

    async def stop(self) -> None:
        """Shuts it down, adopted or not, and lets another process have the folder."""
        postmaster, self._postmaster = self._postmaster, None
        if postmaster is not None:
            await postmaster.stop()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    async def supervise(self) -> None:
        """Starts the server again whenever it has ended, until cancelled."""
        backoff = Backoff(shortest=0.1, longest=10.0)
        place = self._place
        if place is None:
            raise PostgresError("Postgres was not started.")
        while True:
            since = time.monotonic()
            if self._postmaster is not None:
                await self._postmaster.gone()
            if time.monotonic() - since > _STABLE_SECONDS:
                backoff.reset()
            delay = backoff.next()
            log.error("postgres_exited", delay=delay)
            await asyncio.sleep(delay)
            try:
                await self._launch(place)
            except (PostgresError, OSError) as error:
                log.error("postgres_start_failed", exc_info=error)
            else:
                log.info("postgres_restarted")

    def _prepare(self) -> Place:
        self._data.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Unresolved, the server's own name for its folder would differ from ours.
        data = self._data.resolve()
        self._lock = _lock(data / "lock")
        place = find_place(data)
        ensure_cluster(place)
        write_settings(place, self._settings)
        return place

    async def _adopt(self, place: Place) -> bool:
        """Takes over a server that outlived the process that had started it."""
        found = Postmaster.find(place)
        if found is None:
            return False
        try:
            await found.wait_ready(_ADOPT_SECONDS)
            async with await _connect(place):
                pass
        except (PostgresError, psycopg.Error) as error:
            log.warning("postgres_replaced", exc_info=error)
            await found.stop()
            return False
        self._postmaster = found
        return True

    async def _launch(self, place: Place) -> None:
        await Postmaster.clear_the_way(place)
        self._postmaster = Postmaster.launch(place)
        await self._postmaster.wait_ready()


def _url(place: Place) -> str:
    query = f"host={quote(str(place.sockets), safe='')}&port={PORT}"
    return f"postgresql+psycopg://{ROLE}@/{DATABASE}?{query}"


def _lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise PostgresError(f"Another process runs the database of {path.parent}.") from error
    return descriptor


async def _connect(place: Place) -> psycopg.AsyncConnection[tuple[object, ...]]:
    return await psycopg.AsyncConnection.connect(
        host=str(place.sockets), port=PORT, user=ADMIN, dbname="postgres", autocommit=True
    )


async def _ensure_database(place: Place) -> None:
    """The role that we connect as is no superuser: it could run programs by SQL."""
    try:
        async with await _connect(place) as connection:
            found = await connection.execute(
                "SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)
            )
            if await found.fetchone():
                return
            role = await connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (ROLE,))
            if not await role.fetchone():
                await connection.execute(f"CREATE ROLE {ROLE} LOGIN CREATEDB")
            await connection.execute(f"CREATE DATABASE {DATABASE} OWNER {ROLE}")
    except psycopg.Error as error:
        raise PostgresError(
            f"Postgres could not make the database {DATABASE} and its role {ROLE}. Its log "
            f"in {place.home / 'log'} says more: {error}"
        ) from error
