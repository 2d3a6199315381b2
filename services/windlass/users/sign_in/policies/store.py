"""Every query on organizations' policies for sign-ins."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.bounds import MAX_POLICY_METHODS, MAX_SIGN_IN_AGE, PROVIDER_GROUP_LENGTH
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.errors import FailedPrecondition, InvalidArgument
from windlass.policy import OWNER_ROLES
from windlass.users.identity.tables import identities, identity_providers
from windlass.users.keys.revocation import note
from windlass.users.session_strength.strength import SignInPolicy, columns, policy_of
from windlass.users.session_strength.tables import sessions, sign_in_policies
from windlass.users.sign_in.sessions import end_sessions
from windlass.users.tables import api_keys, members

MIN_AGE_SECONDS = 60


def valid_policy(
    *,
    required: bool,
    acr: tuple[str, ...],
    amr: tuple[str, ...],
    max_age: int,
    fresh_max_age: int,
) -> SignInPolicy:
    """A policy of now; raises InvalidArgument."""
    for name, values in (("administrators_acr", acr), ("administrators_amr", amr)):
        if len(values) > MAX_POLICY_METHODS or not all(map(_is_name, values)):
            raise InvalidArgument(
                f"{name} must be at most {MAX_POLICY_METHODS} names as the issuer has them.",
                param=name,
            )
    for name, seconds in (
        ("administrators_max_age", max_age),
        ("fresh_max_age", fresh_max_age),
    ):
        if seconds and not MIN_AGE_SECONDS <= seconds <= MAX_SIGN_IN_AGE:
            raise InvalidArgument(
                f"{name} must be between {MIN_AGE_SECONDS} and {MAX_SIGN_IN_AGE} seconds, or 0 "
                "for any.",
                param=name,
            )
    return SignInPolicy(required, acr, amr, max_age, now_seconds(), fresh_max_age)


class SignInPolicies:
    """Policies by organization."""

    def __init__(self, database: Database):
        self._database = database

    async def get(self, organization_id: str) -> SignInPolicy:
        """The organization's."""
        async with self._database.autocommit() as connection:
            return await read_policy(connection, organization_id)

    async def put(self, organization_id: str, policy: SignInPolicy) -> None:
        """Sets the organization's; sessions follow it within a second.

        Raises FailedPrecondition where it would lock the owners out: sign-in is required once one
        of them has come in by an issuer of the organization's own, in the way that it asks for.
        """
        values = {name: getattr(policy, name) for name in SignInPolicy.__slots__}
        own = sa.select(sessions.c.id).where(sessions.c.organization_id == organization_id)
        async with self._database.begin() as connection:
            if policy.narrows_administrators or policy.required:
                await _require_owner(connection, organization_id, policy)
            statement = insert(sign_in_policies).values(id=organization_id, **values)
            await connection.execute(
                statement.on_conflict_do_update(index_elements=["id"], set_=values)
            )
            if policy.required:
                foreign = sa.select(identity_providers.c.id).where(
                    identity_providers.c.organization_id == ""
                )
                await end_sessions(
                    connection,
                    sessions.c.organization_id == organization_id,
                    sessions.c.provider_id.in_(foreign),
                )
            await note(connection, api_keys.c.id.in_(own))


async def read_policy(connection: AsyncConnection, organization_id: str) -> SignInPolicy:
    """The organization's policy."""
    query = sa.select(*columns()).where(sign_in_policies.c.id == organization_id)
    row = (await connection.execute(query)).first()
    return SignInPolicy() if row is None else policy_of(row)


async def _require_owner(
    connection: AsyncConnection, organization_id: str, policy: SignInPolicy
) -> None:
    """Raises FailedPrecondition unless an owner has a session that the policy admits."""
    query = (
        sa.select(sessions.c.acr, sessions.c.amr, sessions.c.auth_at)
        .join(api_keys, sa.and_(api_keys.c.id == sessions.c.id, api_keys.c.revoked_at == 0))
        .join(identity_providers, identity_providers.c.id == sessions.c.provider_id)
        .join(
            identities,
            sa.and_(
                identities.c.provider_id == sessions.c.provider_id,
                identities.c.subject == sessions.c.subject,
                identities.c.organization_id == sessions.c.organization_id,
            ),
        )
        .join(
            members,
            sa.and_(
                members.c.organization_id == sessions.c.organization_id,
                members.c.project_id == "",
                members.c.user_id == sessions.c.user_id,
                members.c.role.in_(OWNER_ROLES),
            ),
        )
        .where(sessions.c.organization_id == organization_id, identity_providers.c.enabled)
    )
    if policy.required:
        query = query.where(identity_providers.c.organization_id == organization_id)
    rows = (await connection.execute(query)).all()
    if not any(
        policy.admits(acr=row.acr, amr=row.amr) and not policy.is_over(row.auth_at) for row in rows
    ):
        whose = "one of your own issuers" if policy.required else "an issuer"
        raise FailedPrecondition(
            f"No owner is signed in by {whose} in the way that the policy asks for, so that it "
            "would lock all of them out. Sign in as an owner first.",
            reason="no_owner_signed_in",
            param="required" if policy.required else policy.narrows_administrators,
        )


def _is_name(text: str) -> bool:
    return 0 < len(text) <= PROVIDER_GROUP_LENGTH and text.isprintable() and " " not in text
