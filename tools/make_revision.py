"""Write the Alembic revision that turns the history's schema into the tables' present one.

Run `python tools/make_revision.py "what and why"`; it starts a Postgres of its own.
"""

import asyncio
import datetime
import sys
import tempfile
from pathlib import Path

from alembic import command

from windlass.embedded_postgres import EmbeddedPostgres
from windlass.migrations import config, migrate
from windlass.migrations.tables import load_tables


async def main(message: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        postgres = EmbeddedPostgres(Path(folder) / "postgres")
        url = await postgres.start()
        try:
            await asyncio.to_thread(migrate, url)
            load_tables()
            stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d%H%M")
            await asyncio.to_thread(
                command.revision, config(url), message, autogenerate=True, rev_id=stamp
            )
        finally:
            await postgres.stop()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
