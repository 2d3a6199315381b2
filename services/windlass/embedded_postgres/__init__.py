"""The private Postgres of the embedded mode, and dumps of any Postgres.

The programs come from a wheel; we run them ourselves. The server listens on a
Unix socket in a folder of mode 0700 and knows its clients by the kernel's word
(peer), so no password exists and no other user can connect.

May import the kernel alone.
"""

from windlass.embedded_postgres.archive import dump, restore
from windlass.embedded_postgres.errors import PostgresError, VersionMismatch
from windlass.embedded_postgres.server import EmbeddedPostgres

__all__ = ["EmbeddedPostgres", "PostgresError", "VersionMismatch", "dump", "restore"]
