"""Keys for objects as other processes have them: opened, for as long as a data key is kept."""

from dataclasses import dataclass

from windlass.core.errors import Unavailable
from windlass.users.encryption.domain import object_key_context
from windlass.users.encryption.object_keys import ObjectKeyStore, ObjectSealing
from windlass.users.encryption.project_keys import ProjectDataKeys

# Data keys that a project may get one after the other while a key is opened.
_TRIES = 3


@dataclass(frozen=True, slots=True)
class OpenedKey:
    """A key for objects, and for how many seconds it may be kept."""

    secret: bytes
    seconds: float


class ObjectKeyOpening:
    """Tells how objects of projects are sealed, and opens the keys for that."""

    def __init__(self, store: ObjectKeyStore, keys: ProjectDataKeys):
        self._store = store
        self._keys = keys

    async def sealing(self, project_id: str) -> ObjectSealing | None:
        """Returns the key that seals now; None where objects of the project are not sealed."""
        return await self._store.sealing(project_id)

    async def open(self, project_id: str, key_id: str) -> OpenedKey:
        """Opens a key of the project.

        Raises NotFound, and Unavailable `external_key_unavailable`.
        """
        for _ in range(_TRIES):
            sealed, data_key = await self._store.get(project_id, key_id)
            kept = await self._keys.kept(data_key)
            context = object_key_context(project_id, key_id)
            try:
                secret = kept.envelope.open(sealed.envelope, context=context)
            except ValueError:
                # Unless it was sealed anew between the two queries of another process.
                if (await self._store.get(project_id, key_id))[0] == sealed:
                    raise
                continue
            return OpenedKey(secret, kept.seconds)
        raise Unavailable("The project's key is being changed; try again.")
