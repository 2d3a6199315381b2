"""Builds the users service."""

import asyncio

from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.core.app import App
from windlass.core.quotas import Quotas
from windlass.users.bootstrap import bootstrap
from windlass.users.internal import UsersInternalServicer
from windlass.users.keys.changes import KeyChanges
from windlass.users.keys.store import KeyStore
from windlass.users.members import MemberStore
from windlass.users.quotas import TenantQuotas
from windlass.users.secrets import SecretStore
from windlass.users.service import UsersServicer
from windlass.users.store import TenantStore

SWEEP_SECONDS = 3600


async def build(app: App) -> None:
    """Constructs and registers users."""
    settings = app.settings
    quotas = Quotas(settings.quotas)
    tenants, keys = TenantStore(app.database, quotas), KeyStore(app.database)
    members, key_changes = MemberStore(app.database), KeyChanges(app.database)
    secrets = SecretStore(app.database, app.keyring.envelope("tenants' secrets"))
    await bootstrap(
        app.database,
        tenants,
        keys,
        data_dir=settings.data_dir,
        key_prefix=settings.auth.key_prefix,
    )
    await secrets.rewrap_all()
    app.serve(
        UsersServicer(
            tenants,
            members,
            keys,
            key_changes,
            secrets,
            TenantQuotas(app.database, tenants, quotas),
            app.wake,
            key_prefix=settings.auth.key_prefix,
        ),
        rpc.add_UsersServiceServicer_to_server,
    )
    app.serve(
        UsersInternalServicer(tenants, keys, key_changes, secrets, app.wake),
        rpc.add_UsersInternalServiceServicer_to_server,
    )

    async def sweep() -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            await keys.forget_changes()

    app.background("users.sweep", sweep)
