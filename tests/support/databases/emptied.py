"""Databases of one server that tests use one after the other: emptied, not made anew each time.

A copy of a database costs Postgres a tenth of a second of processor time, an emptied one a tenth
of that.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql
from tests.support.environments.postgres import copy_database, database_url, drop_database

# Whatever a test may have changed beside rows: such a database is dropped.
_SHAPE = """
SELECT md5(string_agg(md5(concat(c.relname, c.relkind, a.attname, a.atttypid, a.attnotnull)), ''
                      ORDER BY c.relname, a.attnum)),
       (SELECT count(*) FROM pg_constraint), (SELECT count(*) FROM pg_trigger),
       (SELECT count(*) FROM pg_proc), (SELECT count(*) FROM pg_namespace)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = 'public'::regnamespace
"""
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"
_SEQUENCES = "SELECT sequencename FROM pg_sequences WHERE last_value IS NOT NULL"
_GUARDED = "SELECT DISTINCT tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal"
_END = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = %s AND pid <> pg_backend_pid()"
)


class Databases:
    """Empty databases with every table, each of one test at a time."""

    def __init__(self, server_url: str, template: str):
        self._server_url = server_url
        self._template = template
        self._free: list[str] = []
        with self._connected(template) as connection:
            self._tables = [name for (name,) in connection.execute(_TABLES)]
            self._filled = self._with_rows(connection)
            self._mark = self._marked(connection)

    @contextmanager
    def one(self) -> Iterator[str]:
        """Yields the URL of a database; whoever still has it at the end is cut off."""
        name = self._free.pop() if self._free else copy_database(self._server_url, self._template)
        try:
            yield database_url(self._server_url, name)
        finally:
            self._free += self._emptied(name)

    def _emptied(self, name: str) -> list[str]:
        """The database under another name, so that no process of a test finds it again."""
        renamed = f"test_{secrets.token_hex(6)}"
        try:
            with psycopg.connect(_plain(self._server_url), autocommit=True) as server:
                server.execute(_END, [name])
                server.execute(
                    sql.SQL("ALTER DATABASE {} RENAME TO {}").format(
                        sql.Identifier(name), sql.Identifier(renamed)
                    )
                )
        except psycopg.Error:
            drop_database(self._server_url, name)
            return []
        with self._connected(renamed) as connection:
            is_as_before = self._empty(connection)
        if not is_as_before:
            drop_database(self._server_url, renamed)
            return []
        return [renamed]

    def _empty(self, connection: psycopg.Connection[Any]) -> bool:
        """Removes all rows; returns False where more has changed."""
        filled = [name for name in self._with_rows(connection) if name not in self._filled]
        if filled:
            names = sql.SQL(", ").join(map(sql.Identifier, filled))
            guarded = [name for (name,) in connection.execute(_GUARDED) if name in filled]
            self._guard(connection, guarded, "DISABLE")
            connection.execute(sql.SQL("TRUNCATE {} RESTART IDENTITY CASCADE").format(names))
            self._guard(connection, guarded, "ENABLE")
        for (sequence,) in connection.execute(_SEQUENCES).fetchall():
            statement = sql.SQL("ALTER SEQUENCE {} RESTART").format(sql.Identifier(sequence))
            connection.execute(statement)
        return self._marked(connection) == self._mark

    def _guard(self, connection: psycopg.Connection[Any], tables: list[str], state: str) -> None:
        """Turns the triggers of tables off or on, such as those that let nothing be deleted."""
        for name in tables:
            statement = sql.SQL("ALTER TABLE {} {} TRIGGER USER")
            connection.execute(statement.format(sql.Identifier(name), sql.SQL(state)))

    def _with_rows(self, connection: psycopg.Connection[Any]) -> list[str]:
        parts = [
            sql.SQL("SELECT {} WHERE EXISTS (SELECT 1 FROM {})").format(
                sql.Literal(name), sql.Identifier(name)
            )
            for name in self._tables
        ]
        return [name for (name,) in connection.execute(sql.SQL(" UNION ALL ").join(parts))]

    def _marked(self, connection: psycopg.Connection[Any]) -> list[Any]:
        """The schema, and the rows that every database has."""
        found = [connection.execute(_SHAPE).fetchone()]
        for name in self._filled:
            rows = sql.SQL("SELECT md5(string_agg(t::text, ',' ORDER BY t::text)) FROM {} t")
            found.append(connection.execute(rows.format(sql.Identifier(name))).fetchone())
        return found

    def _connected(self, name: str) -> psycopg.Connection[Any]:
        return psycopg.connect(_plain(database_url(self._server_url, name)), autocommit=True)


def _plain(url: str) -> str:
    return url.replace("+psycopg", "")
