"""The schema's history against a real Postgres."""

import threading

import sqlalchemy as sa
from alembic import command
from tests.support.environments import postgres

from windlass.migrations import config, current, differences, head, migrate


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


def test_keys_that_are_there_rest_on_their_line_of_makers(postgres_url: str) -> None:
    with postgres.fresh_database(postgres_url) as url:
        command.upgrade(config(url), "202611241110")
        engine = sa.create_engine(url)
        keys = [("root", "ann", "", ""), ("handed", "bob", "ann", "root")]
        keys += [("minted", "bob", "bob", "handed"), ("lone", "eve", "gone", "")]
        with engine.begin() as connection:
            for key, owner, maker, parent in keys:
                connection.execute(
                    sa.text(
                        "INSERT INTO users_api_keys (id, digest, name, organization_id, project_id,"
                        " user_id, role, redacted, created_at, expires_at, made_by, parent_key_id)"
                        " VALUES (:key, :digest, 'k', 'org', '', :owner, 'organization_reader', '',"
                        " 0, 0, :maker, :parent)"
                    ),
                    {
                        "key": key,
                        "digest": key.encode(),
                        "owner": owner,
                        "maker": maker,
                        "parent": parent,
                    },
                )
        migrate(url)
        with engine.connect() as connection:
            found = connection.execute(sa.text("SELECT id, rests_on FROM users_api_keys"))
            assert {row.id: row.rests_on for row in found} == {
                "root": [],
                "handed": ["ann"],
                "minted": ["ann", "bob"],
                "lone": ["gone"],
            }
        engine.dispose()
