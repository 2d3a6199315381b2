"""A replica that does nothing but seal secrets anew, until all is done or it is killed."""

import asyncio
import os
import sys
from pathlib import Path

from windlass.core.config import Settings
from windlass.core.db import Database
from windlass.core.keyring import Keyring, open_keyring
from windlass.users.encryption.data_keys import DataKeyStore
from windlass.users.encryption.external_keys import ExternalKeyStore
from windlass.users.encryption.keepers import KeyKeepers
from windlass.users.encryption.object_keys import ObjectKeyStore
from windlass.users.encryption.project_keys import ProjectDataKeys
from windlass.users.encryption.resealing import Resealing
from windlass.users.encryption.secrets import SecretStore


def assembled(
    database: Database, keepers: KeyKeepers, settings: Settings, keyring: Keyring
) -> tuple[ProjectDataKeys, SecretStore]:
    """Project keys and secrets, as the service of users builds them."""
    keys = ProjectDataKeys(
        DataKeyStore(database),
        ExternalKeyStore(database),
        keepers,
        keyring,
        seconds=settings.external_keys.cache_seconds,
    )
    return keys, SecretStore(database, keys)


async def main(url: str, data: Path) -> None:
    """Works until nothing is left."""
    settings = Settings(data_dir=data)
    database = Database(url, pool_size=4)
    keyring = await open_keyring(settings, database)
    keepers = KeyKeepers(settings.external_keys, keyring.envelope("external keys' credentials"))
    keys, secrets = assembled(database, keepers, settings, keyring)
    resealing = Resealing(database, keys, secrets, ObjectKeyStore(database))
    await resealing.begin()
    while await resealing.once():
        pass
    await keepers.close()
    await database.close()


if __name__ == "__main__":
    asyncio.run(main(os.environ["DATABASE"], Path(sys.argv[1])))
