"""Errors of the embedded Postgres."""


class PostgresError(Exception):
    """The embedded Postgres cannot do what was asked; the message says what to change."""


class VersionMismatch(PostgresError):
    """The cluster was made by another major version of PostgreSQL."""
