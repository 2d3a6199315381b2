"""Alembic's environment: runs revisions on the connection that `migrate` holds the lock with."""

import sqlalchemy as sa
from alembic import context

from windlass.core.db import metadata
from windlass.migrations.tables import load_tables


def run(connection: sa.Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata)
    with context.begin_transaction():
        context.run_migrations()


attributes = context.config.attributes
if "connection" in attributes:
    run(attributes["connection"])
else:
    load_tables()
    with sa.create_engine(attributes["url"]).connect() as opened:
        run(opened)
        opened.commit()
