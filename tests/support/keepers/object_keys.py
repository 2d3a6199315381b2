"""Object keys of projects for the tests of sealed stores."""

from dataclasses import dataclass, field

from windlass.core.errors import NotFound, Unavailable
from windlass.core.objects import ObjectKey

PROJECT = "proj_sealed"


@dataclass
class FixedKeys:
    """ObjectKeys of one project, which can be away."""

    project_id: str
    keys: list[ObjectKey] = field(default_factory=lambda: [ObjectKey("okey_1", b"k" * 32)])
    away: bool = False

    async def seals(self, project_id: str) -> bool:
        return project_id == self.project_id

    async def sealing(self, project_id: str) -> ObjectKey | None:
        if not await self.seals(project_id):
            return None
        self._reach()
        return self.keys[-1]

    async def opening(self, project_id: str, key_id: str) -> ObjectKey:
        self._reach()
        for key in self.keys:
            if key.id == key_id:
                return key
        raise NotFound(f"No object key {key_id!r}.")

    def _reach(self) -> None:
        if self.away:
            raise Unavailable("The key ekm_1 is away.", reason="external_key_unavailable")
