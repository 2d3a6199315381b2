"""The schema's history: one Alembic chain for every service's tables.

Revisions expand first and contract a release later, so that two versions of
the server can run at once. A released revision is never edited.

May import the kernel; `tables` loads each service's tables by name.
"""

from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from windlass.core.db import metadata
from windlass.migrations.tables import load_tables

# Any constant that no other program locks.
_LOCK = 0x57494E444C415353


def config(url: str) -> Config:
    """Alembic's configuration; no ini file, since nothing in it would differ."""
    made = Config()
    made.set_main_option("script_location", str(Path(__file__).parent))
    made.attributes["url"] = url
    return made


class SchemaError(Exception):
    """The schema is not one that this code can work with; the message says what to do."""


@dataclass(frozen=True, slots=True)
class SchemaState:
    """The revision of a database beside those that this code knows."""

    current: str | None
    head: str | None
    # What `migrate` would apply, the oldest first.
    pending: tuple[str, ...]
    is_known: bool

    def problem(self) -> str:
        """Returns why this code cannot work with the schema; empty where it can."""
        if not self.is_known:
            return (
                f"The database's schema is at revision {self.current}, which this release does "
                "not know: a newer release has migrated it. Run that release, or restore a backup."
            )
        if self.current is None:
            return "The database has no schema: run `windlass db migrate`."
        if self.pending:
            return (
                f"The database's schema is {len(self.pending)} revisions behind this release: "
                "run `windlass db migrate`."
            )
        return ""


def migrate(url: str) -> None:
    """Brings the schema to the head, under a lock that one process holds at a time.

    Raises SchemaError for a schema that a newer release has migrated, or a refusal.
    """
    engine = sa.create_engine(url)
    try:
        if _needs_none(engine):
            return
        with engine.connect() as connection:
            connection.execute(sa.text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
            connection.commit()
            settings = config(url)
            settings.attributes["connection"] = connection
            command.upgrade(settings, "head")
            connection.commit()
    except sa.exc.DBAPIError as error:
        said = " ".join(str(error.orig).split())
        raise SchemaError(f"The database's schema cannot be migrated: {said}") from error
    finally:
        # Closing the connection gives the lock back.
        engine.dispose()


def check_schema(url: str) -> None:
    """Raises SchemaError unless this code can work with the schema as it is."""
    engine = sa.create_engine(url)
    try:
        if problem := state(engine).problem():
            raise SchemaError(problem)
    finally:
        engine.dispose()


def _needs_none(engine: sa.Engine) -> bool:
    found = state(engine)
    if not found.is_known:
        raise SchemaError(found.problem())
    return not found.pending


def state(engine: sa.Engine) -> SchemaState:
    """The revision of the database, and what this code would make of it."""
    known = revisions()
    at = current(engine)
    newer = known if at is None else known[: known.index(at)] if at in known else []
    is_known = at is None or at in known
    return SchemaState(at, known[0], tuple(reversed(newer)), is_known)


def revisions() -> list[str]:
    """The revisions that this code knows, the newest first."""
    script = ScriptDirectory.from_config(config(""))
    return [revision.revision for revision in script.walk_revisions()]


def head() -> str | None:
    """The newest revision that this code knows."""
    return ScriptDirectory.from_config(config("")).get_current_head()


def current(engine: sa.Engine) -> str | None:
    """The revision that the database is at."""
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def differences(engine: sa.Engine) -> list[object]:
    """The changes that autogenerate would still make: empty when tables and history agree."""
    load_tables()
    with engine.connect() as connection:
        return list(compare_metadata(MigrationContext.configure(connection), metadata))
