"""The schema's history against a real Postgres."""

import threading

import sqlalchemy as sa
from tests.support.environments import postgres

from windlass.migrations import current, differences, head, migrate


def test_history_and_tables_agree(database_url: str) -> None:
    engine = sa.create_engine(database_url)
    assert current(engine) == head()
    assert differences(engine) == []
    engine.dispose()


def test_servers_that_start_together_migrate_once(postgres_url: str) -> None:
    with postgres.fresh_database(postgres_url) as url:
        failures: list[BaseException] = []

        def run() -> None:
            try:
                migrate(url)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        engine = sa.create_engine(url)
        assert current(engine) == head()
        engine.dispose()
