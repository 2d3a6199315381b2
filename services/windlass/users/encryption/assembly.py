"""Builds what seals for projects, serves external keys, and runs what seals anew."""

from dataclasses import dataclass

from windlass.api.users.v1 import external_keys_pb2_grpc as rpc
from windlass.core.app import App
from windlass.core.db.leases import run_loop
from windlass.users.encryption.data_keys import DataKeyStore
from windlass.users.encryption.external_keys import ExternalKeyStore
from windlass.users.encryption.keepers import KeyKeepers
from windlass.users.encryption.object_keys import ObjectKeyStore
from windlass.users.encryption.opening import ObjectKeyOpening
from windlass.users.encryption.project_keys import ProjectDataKeys
from windlass.users.encryption.resealing import TOPIC, Resealing
from windlass.users.encryption.secrets import SecretStore
from windlass.users.encryption.service import ExternalKeysServicer
from windlass.users.store import TenantStore


@dataclass(frozen=True)
class Encryption:
    """Projects' data keys, and what they seal."""

    keys: ProjectDataKeys
    secrets: SecretStore
    object_keys: ObjectKeyOpening


async def build_encryption(app: App, tenants: TenantStore) -> Encryption:
    """Returns the projects' data keys and what they seal."""
    settings = app.settings.external_keys
    rows, external_keys = DataKeyStore(app.database), ExternalKeyStore(app.database)
    keepers = KeyKeepers(settings, app.keyring.envelope("external keys' credentials"))
    app.on_stop(keepers.close)
    keys = ProjectDataKeys(
        rows, external_keys, keepers, app.keyring, seconds=settings.cache_seconds
    )
    object_keys = ObjectKeyStore(app.database)
    servicer = ExternalKeysServicer(
        tenants, external_keys, keepers, keys, rows, object_keys, app.wake
    )
    app.serve(servicer, rpc.add_ExternalKeysServiceServicer_to_server)
    secrets = SecretStore(app.database, keys)
    resealing = Resealing(app.database, keys, secrets, object_keys)
    listener = app.wake.listen(TOPIC)
    await resealing.begin()
    app.background(
        "users.resealing",
        lambda: run_loop("users.resealing", listener, resealing.once, resting=resealing.has_none),
    )
    return Encryption(keys, secrets, ObjectKeyOpening(object_keys, keys))
