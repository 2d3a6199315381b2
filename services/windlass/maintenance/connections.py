"""Tries what a server connects to: its database, its keys and its object store."""

import time
from importlib.metadata import version

import sqlalchemy as sa

from windlass.core.config import Settings
from windlass.core.db import Database
from windlass.core.db.waiting import DatabaseUnavailable
from windlass.core.keyring import KeyringError, check_master_key
from windlass.core.objects import open_store
from windlass.embedded_postgres import PostgresError
from windlass.maintenance.database import database_status, open_database
from windlass.maintenance.diagnosis import CheckResult, fail, guarded, ok, warn

_CLOCK_SECONDS = 2.0
_CONNECTIONS_SHARE = 0.8
# The doctor works while no service runs that could be asked.
_AGENTS = sa.text(
    "SELECT name, agent_version FROM clusters_clusters WHERE agent_version != ''"
    " AND last_seen_at > now() - interval '1 day' ORDER BY name"
)
_BACKUP = "Put it back from a backup, or set master_key."


async def check_connections(settings: Settings) -> list[CheckResult]:
    """The database with its schema, clock, keys and agents, and the object store."""
    found = await _database(settings)
    return [*found, await guarded("store", lambda: _store(settings))]


async def _database(settings: Settings) -> list[CheckResult]:
    is_private = not settings.database.driver_url
    if is_private and not (settings.data_dir / "postgres").is_dir():
        return [ok("database", "There is none yet: the first start makes a private Postgres.")]
    try:
        async with open_database(settings) as url:
            return await _of(settings, url)
    except (PostgresError, DatabaseUnavailable, OSError) as error:
        where = "the log under data/postgres/log" if is_private else "database.url and Postgres"
        return [fail("database", str(error), f"Look at {where}.")]


async def _of(settings: Settings, url: str) -> list[CheckResult]:
    status = await database_status(url)
    used = f"{status.connections} of {status.max_connections} connections"
    text = f"PostgreSQL {status.server_version}, {used}."
    if status.connections > _CONNECTIONS_SHARE * status.max_connections:
        found = [warn("database", text, "Raise max_connections, or lower database.pool_size.")]
    else:
        found = [ok("database", text)]
    if problem := status.schema.problem():
        # A start migrates by itself, unless it was told not to, or cannot.
        mends = settings.database.migrate and status.schema.is_known
        remedy = "The next start migrates it." if mends else "Run `windlass db migrate`."
        found.append((warn if mends else fail)("schema", problem, remedy))
        return found
    found.append(ok("schema", f"At revision {status.schema.current}, this release's."))
    database = Database(url, pool_size=2)
    try:
        found.append(await guarded("clock", lambda: _clock(database)))
        found.append(await _keys(settings, database))
        found.append(await guarded("agents", lambda: _agents(database)))
    finally:
        await database.close()
    return found


async def _clock(database: Database) -> CheckResult:
    asked = time.time()
    async with database.autocommit() as connection:
        query = sa.select(sa.func.extract("epoch", sa.func.clock_timestamp()))
        there = float((await connection.execute(query)).scalar_one())
    off = abs(there - (asked + time.time()) / 2)
    text = f"This machine and the database differ by {off:.1f} s."
    if off <= _CLOCK_SECONDS:
        return ok("clock", text)
    return warn("clock", text, "Let NTP set both clocks: TLS and logs read this machine's.")


async def _keys(settings: Settings, database: Database) -> CheckResult:
    try:
        name = await check_master_key(settings, database)
    except KeyringError as error:
        return fail("keys", str(error), _BACKUP)
    return ok("keys", f"The master key {name} opens this database." if name else "None yet.")


async def _agents(database: Database) -> CheckResult:
    async with database.autocommit() as connection:
        rows = (await connection.execute(_AGENTS)).all()
    if not rows:
        return ok("agents", "None has connected in the last day.")
    ours = version("windlass")
    others = [f"{row.name} is {row.agent_version}" for row in rows if row.agent_version != ours]
    if not others:
        return ok("agents", f"{len(rows)} connected in the last day, each of release {ours}.")
    text = f"This server is {ours}; {', '.join(others)}."
    return warn("agents", text, "Upgrade the server first, then its agents, release by release.")


async def _store(settings: Settings) -> CheckResult:
    root, objects = settings.data_dir / "objects", settings.objects
    if objects.kind == "filesystem" and not root.is_dir():
        return ok("store", f"The first start makes {root}.")
    store = open_store(objects, root=root, public_url="", signing_secret=b"")
    try:
        await store.check()
    finally:
        await store.close()
    return ok("store", f"{objects.bucket or root} can be written.")
