"""Builds the users service."""

import asyncio

from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.core.app import App, private_key_file
from windlass.users.bootstrap import bootstrap
from windlass.users.internal import UsersInternalServicer
from windlass.users.keys import KeyStore
from windlass.users.secrets import Envelope, SecretStore, parse_master_keys
from windlass.users.service import UsersServicer
from windlass.users.store import TenantStore

SWEEP_SECONDS = 3600


async def build(app: App) -> None:
    """Constructs and registers users."""
    settings = app.settings
    tenants, keys = TenantStore(app.database), KeyStore(app.database)
    if text := settings.auth.secrets_key.get_secret_value():
        masters = parse_master_keys(text)
    else:
        masters = [private_key_file(settings.data_dir / "keys" / "secrets.key")]
    secrets = SecretStore(app.database, Envelope(masters))
    await bootstrap(
        app.database,
        tenants,
        keys,
        data_dir=settings.data_dir,
        key_prefix=settings.auth.key_prefix,
    )
    await secrets.rewrap_all()
    app.serve(
        UsersServicer(tenants, keys, secrets, key_prefix=settings.auth.key_prefix),
        rpc.add_UsersServiceServicer_to_server,
    )
    app.serve(
        UsersInternalServicer(tenants, keys, secrets),
        rpc.add_UsersInternalServiceServicer_to_server,
    )

    async def sweep() -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            await keys.forget_changes()

    app.background("users.sweep", sweep)
