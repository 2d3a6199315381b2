"""Recovery of the platform: a new owner, made with access to the database."""

from pathlib import Path

import sqlalchemy as sa

from windlass.core.clock import now_seconds
from windlass.core.config import QuotasSection
from windlass.core.db import Database
from windlass.core.quotas import Quotas
from windlass.core.rpc import auth
from windlass.policy import PLATFORM_ADMIN
from windlass.users.certificates.store import CertificateStore
from windlass.users.domain import ApiKey, Member
from windlass.users.keys.store import KeyStore
from windlass.users.membership.store import MemberStore
from windlass.users.ownership.bootstrap import owner_key, write_private
from windlass.users.store import TenantStore
from windlass.users.tables import organizations, people


async def recover(
    database: Database,
    *,
    user_id: str,
    path: Path,
    key_prefix: str,
    without_certificates: bool = False,
) -> ApiKey:
    """Make a person administrator of the platform and write a new key of theirs to a file.

    The person joins the oldest live organization, which is made when there is none, and is active
    there whatever its directory says. `without_certificates` has it demand none of clients any
    more. Raises InvalidArgument when `user_id` is a service account there.
    """
    organization_id = await _oldest(database)
    if organization_id is None:
        made = await TenantStore(database, Quotas(QuotasSection())).create_organization(
            "Default organization", owner=user_id, role=PLATFORM_ADMIN
        )
        organization_id = made.id
    member = Member(organization_id, "", user_id, PLATFORM_ADMIN, now_seconds())
    await MemberStore(database).put(member)
    known = (people.c.organization_id == organization_id, people.c.user_id == user_id)
    async with database.begin() as connection:
        await connection.execute(people.update().where(*known).values(deactivated_at=0))
    if without_certificates:
        await CertificateStore(database).deactivate_all(organization_id)
    secret = auth.new_secret(key_prefix)
    key = owner_key(secret, organization_id=organization_id, user_id=user_id, prefix=key_prefix)
    write_private(path, secret)
    return await KeyStore(database).create(key, auth.digest(secret))


async def _oldest(database: Database) -> str | None:
    query = (
        sa.select(organizations.c.id)
        .where(organizations.c.deleted_at == 0)
        .order_by(organizations.c.created_at, organizations.c.id)
    )
    async with database.autocommit() as connection:
        found: str | None = await connection.scalar(query.limit(1))
        return found
