"""The strength of a session: what an organization asks of people who administer it.

A session that is too weak does what members do, until its person signs in anew.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.errors import PermissionDenied
from windlass.policy import OWNER_ROLES, ROLES, permissions_of
from windlass.users.domain import SERVICE_ACCOUNT, SESSION, ApiKey
from windlass.users.session_strength.tables import sessions, sign_in_policies
from windlass.users.standing import Worth
from windlass.users.tables import members, organizations

_UNGUARDED = permissions_of(role for role in ROLES if role not in OWNER_ROLES)


@dataclass(frozen=True, slots=True)
class SignInPolicy:
    """Demands of an organization on sign-ins; one that has set nothing has none."""

    # Its own issuers alone let its people in, and people make keys only while signed in.
    required: bool = False
    # One of these, as the issuer names how somebody has shown who they are; none: any.
    administrators_acr: tuple[str, ...] = ()
    administrators_amr: tuple[str, ...] = ()
    # Seconds since then; 0: any.
    administrators_max_age: int = 0
    updated_at: int = 0
    # Seconds since then, of anybody in a session, before a dangerous step; 0: the installation's.
    fresh_max_age: int = 0

    def admits(self, *, acr: str, amr: Iterable[str]) -> bool:
        """Returns True if administrators may come in so."""
        is_class = not self.administrators_acr or acr in self.administrators_acr
        return is_class and (
            not self.administrators_amr or not set(amr).isdisjoint(self.administrators_amr)
        )

    def strong_until(self, auth_at: int) -> int:
        """The time at which somebody who showed then who they are has to do it again; 0: never."""
        return auth_at + self.administrators_max_age if self.administrators_max_age else 0

    def is_over(self, auth_at: int) -> bool:
        """Returns True if who showed then who they are has to do it again."""
        return 0 < self.strong_until(auth_at) <= now_seconds()

    @property
    def narrows_administrators(self) -> str:
        """The first field that asks something of administrators; empty: none does."""
        names = ("administrators_acr", "administrators_amr", "administrators_max_age")
        return next((name for name in names if getattr(self, name)), "")


def weakened(worth: Worth) -> Worth:
    """The worth of a session without what only owners may do."""
    roles = tuple(role for role in worth.roles if role not in OWNER_ROLES)
    return replace(worth, roles=roles, permissions=worth.permissions & _UNGUARDED, is_weakened=True)


def fresh_until(auth_at: int | None, *asked: int) -> int | None:
    """The time until which who showed then who they are takes dangerous steps.

    The shortest of the times `asked` for counts, of which 0 is none. None: nobody asks; 0: it is
    not known when they showed it, so that they take none.
    """
    seconds = min(filter(None, asked), default=0)
    if not seconds:
        return None
    return auth_at + seconds if auth_at else 0


async def judged(
    connection: AsyncConnection, session: ApiKey, worth: Worth, fresh_seconds: int
) -> tuple[Worth, int]:
    """The worth of a session by its organization's policy, and when that ends; 0: with it."""
    query = (
        sa.select(
            sessions.c.auth_at,
            sessions.c.acr,
            sessions.c.amr,
            sign_in_policies.c.id.label("policy_id"),
            *columns(),
        )
        .select_from(organizations)
        .outerjoin(sessions, sessions.c.id == session.id)
        .outerjoin(sign_in_policies, sign_in_policies.c.id == organizations.c.id)
        .where(organizations.c.id == session.organization_id)
    )
    row = (await connection.execute(query)).one()
    policy = SignInPolicy() if row.policy_id is None else policy_of(row)
    until = fresh_until(row.auth_at, fresh_seconds, policy.fresh_max_age)
    worth = replace(worth, fresh_until=until)
    if row.policy_id is None:
        return worth, 0
    if row.auth_at is None:
        return weakened(worth), 0
    if not policy.admits(acr=row.acr, amr=row.amr) or policy.is_over(row.auth_at):
        return weakened(worth), 0
    return worth, policy.strong_until(row.auth_at)


async def require_signed_in(connection: AsyncConnection, key: ApiKey, parent: ApiKey) -> None:
    """Raises PermissionDenied for a person's key, where those are made while signed in alone."""
    if parent.kind == SESSION:
        return
    required = sa.exists().where(
        sign_in_policies.c.id == key.organization_id, sign_in_policies.c.required
    )
    account = sa.exists().where(
        members.c.organization_id == key.organization_id,
        members.c.user_id == key.user_id,
        members.c.kind == SERVICE_ACCOUNT,
    )
    if await connection.scalar(sa.select(sa.and_(required, ~account))):
        raise PermissionDenied(
            "In this organization people make keys while they are signed in. Run `windlass auth "
            "login --web`, or make the key for a service account.",
            reason="sign_in_required",
            param="user_id",
        )


def columns() -> list[sa.Column[object]]:
    """The columns of a policy."""
    return [sign_in_policies.c[name] for name in SignInPolicy.__slots__]


def policy_of(row: object) -> SignInPolicy:
    """The policy of a row."""
    values = {name: getattr(row, name) for name in SignInPolicy.__slots__}
    lists = {name: tuple(values[name]) for name in ("administrators_acr", "administrators_amr")}
    return SignInPolicy(**values | lists)
