"""The manifest of an export: each file of the archive with its size and SHA-256."""

from collections.abc import AsyncIterator

import orjson

from windlass.core.db import Database
from windlass.core.exporting.archive import END, room
from windlass.users.exporting.domain import ExportPart, TenantExport
from windlass.users.exporting.store import parts_after

NAME = "manifest.json"
PAGE = 500


class ExportManifest:
    """One writing of a manifest; `room` is what the parts take in the archive."""

    def __init__(self, database: Database, export: TenantExport):
        self._database = database
        self._export = export
        self.room = len(END)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The JSON of the manifest, in pages."""
        about = {
            "export_id": self._export.id,
            "organization_id": self._export.organization_id,
            "user_id": self._export.user_id or None,
            "asked_by": self._export.asked_by,
            "asked_at": self._export.asked_at,
        }
        yield orjson.dumps(about)[:-1] + b',"files":['
        after, comma = "", b""
        while page := await parts_after(self._database, self._export.id, after, PAGE):
            lines = []
            for part in page:
                self.room += room(part.name, part.bytes, self._export.asked_at)
                lines.append(comma + b"\n" + orjson.dumps(_told(part)))
                comma = b","
            yield b"".join(lines)
            after = page[-1].name
        yield b"\n]}\n"


def _told(part: ExportPart) -> dict[str, object]:
    return {
        "name": part.name,
        "bytes": part.bytes,
        "sha256": part.sha256.hex(),
        "rows": part.rows,
    }
