"""The schema's history: one Alembic chain for every service's tables.

Revisions expand first and contract a release later, so that two versions of
the server can run at once. A released revision is never edited.
"""

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


def migrate(url: str) -> None:
    """Brings the schema to the head, under a lock that one process holds at a time."""
    engine = sa.create_engine(url)
    try:
        if current(engine) == head():
            return
        with engine.connect() as connection:
            connection.execute(sa.text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
            connection.commit()
            settings = config(url)
            settings.attributes["connection"] = connection
            command.upgrade(settings, "head")
            connection.commit()
    finally:
        # Closing the connection gives the lock back.
        engine.dispose()


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
