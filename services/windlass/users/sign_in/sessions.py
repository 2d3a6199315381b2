"""Sessions of people: credentials that are renewed while they are used, and end.

A refresh token names the session and the number of the turn that it is good for, under a MAC: one
that is taken a second time is known for what it is, however old.
"""

import base64
import hashlib
import hmac
from dataclasses import asdict, dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core import telemetry
from windlass.core.clock import now_seconds
from windlass.core.config import SignInSection
from windlass.core.db import Database
from windlass.core.errors import InvalidArgument
from windlass.core.ids import SESSION_PREFIX, is_id, new_id
from windlass.core.rpc import auth
from windlass.users.domain import SESSION, ApiKey
from windlass.users.identity.tables import (
    device_sign_ins,
    identities,
    identity_providers,
    sign_in_codes,
    sign_in_questions,
)
from windlass.users.keys.revocation import revoke_where
from windlass.users.keys.store import key_of
from windlass.users.session_strength.tables import sessions, sign_in_policies
from windlass.users.sign_in.domain import SignedIn, refused
from windlass.users.tables import api_keys, key_changes, people

log = telemetry.logger("users.sign_in")
# For calls that are under way when a session gets another secret.
OVERLAP_SECONDS = 60
NAME_LENGTH = 200
_ENDED = "This session has ended. Sign in again."


@dataclass(frozen=True, slots=True)
class Secrets:
    """A session and what it is used by."""

    session: ApiKey
    secret: str
    refresh_token: str
    idle_until: int
    ends_at: int


class SessionStore:
    """Sessions of people who signed in."""

    def __init__(
        self, database: Database, settings: SignInSection, *, mac_key: bytes, key_prefix: str
    ):
        self._database = database
        self._settings = settings
        self._mac_key = mac_key
        self._key_prefix = key_prefix

    async def begin(self, who: SignedIn, name: str) -> Secrets:
        """Starts a session of a person, under the name of the client that it is for.

        Raises PermissionDenied where the provider, the person or the organization's policy would
        not let them in any more.
        """
        now = now_seconds()
        ends_at = now + self._settings.longest_seconds
        # A secret that outlived its session would be under no policy, and no logout would end it.
        idle_until = min(now + self._settings.idle_seconds, ends_at)
        secret = auth.new_secret(self._key_prefix)
        session = ApiKey(
            id=new_id(SESSION_PREFIX),
            name=_printable(name)[:NAME_LENGTH] or "browser",
            organization_id=who.organization_id,
            project_id="",
            user_id=who.user_id,
            role="",
            redacted=auth.redact(secret, self._key_prefix),
            created_at=now,
            expires_at=min(now + self._settings.secret_seconds, idle_until),
            revoked_at=0,
            last_used_at=now,
            made_by="",
            parent_key_id="",
            last_used_address=auth.client_address.get(),
            kind=SESSION,
        )
        row = asdict(who) | {
            "id": session.id,
            "turn": 0,
            "idle_until": idle_until,
            "ends_at": ends_at,
        }
        values = {field: getattr(session, field) for field in ApiKey.__slots__}
        async with self._database.begin() as connection:
            await _require_vouched(connection, who)
            await connection.execute(
                api_keys.insert().values(values | {"digest": auth.digest(secret)})
            )
            await connection.execute(sessions.insert().values(row))
        token = self._token(session.id, 0)
        return Secrets(session, secret, token, int(row["idle_until"]), ends_at)

    async def refresh(self, token: str) -> Secrets:
        """Gives a session other secrets, and more time; raises InvalidArgument.

        A token that was taken before ends the session: two have it, and one is a thief.
        """
        session_id, turn = self._read(token)
        async with self._database.begin() as connection:
            which = sessions.c.id == session_id
            query = sessions.select().where(which).with_for_update()
            row = (await connection.execute(query)).first()
            found = await _credential(connection, session_id)
            if row is None or found is None or row.idle_until <= now_seconds():
                raise InvalidArgument(_ENDED, reason="invalid_grant", param="refresh_token")
            if row.turn == turn:
                return await self._renew(connection, found, turn + 1, row.ends_at)
            await _end(connection, found.organization_id, session_id)
        log.warning("refresh_token_reused", session_id=session_id)
        raise InvalidArgument(_ENDED, reason="invalid_grant", param="refresh_token")

    async def end_by(self, token: str) -> ApiKey | None:
        """Ends the session of a refresh token, which is returned, unless it has ended already.

        Raises InvalidArgument for what is no token of ours.
        """
        session_id, _ = self._read(token)
        async with self._database.begin() as connection:
            found = await _credential(connection, session_id)
            if found is not None:
                await _end(connection, found.organization_id, session_id)
        return found

    async def _renew(
        self, connection: AsyncConnection, session: ApiKey, turn: int, ends_at: int
    ) -> Secrets:
        now = now_seconds()
        secret = auth.new_secret(self._key_prefix)
        idle_until = min(now + self._settings.idle_seconds, ends_at)
        renewed = {
            "redacted": auth.redact(secret, self._key_prefix),
            "expires_at": min(now + self._settings.secret_seconds, idle_until),
            "rotated_at": now,
            "previous_until": now + OVERLAP_SECONDS,
        }
        own = api_keys.c.id == session.id
        await connection.execute(
            api_keys.update()
            .where(own)
            .values(**renewed, previous_digest=api_keys.c.digest, digest=auth.digest(secret))
        )
        await connection.execute(
            sessions.update()
            .where(sessions.c.id == session.id)
            .values(turn=turn, idle_until=idle_until)
        )
        await connection.execute(key_changes.insert().values(key_id=session.id))
        row = (await connection.execute(api_keys.select().where(own))).one()
        token = self._token(session.id, turn)
        return Secrets(key_of(row), secret, token, idle_until, ends_at)

    async def end(self, provider_id: str, *, subject: str, issuer_session: str) -> None:
        """Ends the sessions of a person or of one session at the issuer, as far as is said."""
        where = [sessions.c.subject == subject] if subject else []
        pending = {"subject": subject} if subject else {}
        if issuer_session:
            where.append(sessions.c.issuer_session == issuer_session)
            pending["issuer_session"] = issuer_session
        pending["provider_id"] = provider_id
        async with self._database.begin() as connection:
            # What has begun and would become a session.
            for table in (sign_in_codes, sign_in_questions, device_sign_ins):
                begun = table.c.signed_in.contains(pending)
                await connection.execute(table.delete().where(begun))
            await end_sessions(connection, sessions.c.provider_id == provider_id, *where)

    async def sweep(self) -> None:
        """Removes what nobody can refresh any more."""
        now = now_seconds()
        over = sa.or_(sessions.c.idle_until <= now, sessions.c.ends_at <= now)
        async with self._database.begin() as connection:
            await connection.execute(sessions.delete().where(over))

    def _token(self, session_id: str, turn: int) -> str:
        return f"{session_id}.{turn}.{self._mac(session_id, turn)}"

    def _read(self, token: str) -> tuple[str, int]:
        """The session and the turn of a token of ours; raises InvalidArgument."""
        session_id, _, rest = token.partition(".")
        number, _, mac = rest.partition(".")
        if (
            is_id(session_id, SESSION_PREFIX)
            and number.isascii()
            and number.isdigit()
            and len(number) < 10
        ):
            turn = int(number)
            if hmac.compare_digest(mac.encode(), self._mac(session_id, turn).encode()):
                return session_id, turn
        raise InvalidArgument(_ENDED, reason="invalid_grant", param="refresh_token")

    def _mac(self, session_id: str, turn: int) -> str:
        named = f"{session_id}.{turn}".encode()
        mac = hmac.digest(self._mac_key, named, hashlib.sha256)
        return base64.urlsafe_b64encode(mac).decode().rstrip("=")


async def _require_vouched(connection: AsyncConnection, who: SignedIn) -> None:
    """Raises PermissionDenied unless the provider still vouches for a person, who is let in."""
    vouches = (
        sa.select(identity_providers.c.organization_id)
        .join(identities, identities.c.provider_id == identity_providers.c.id)
        .where(
            identity_providers.c.id == who.provider_id,
            identity_providers.c.enabled,
            identities.c.subject == who.subject,
            identities.c.organization_id == who.organization_id,
            identities.c.user_id == who.user_id,
        )
        .with_for_update(read=True, of=identity_providers)
    )
    row = (await connection.execute(vouches)).first()
    required = sa.exists().where(
        sign_in_policies.c.id == who.organization_id, sign_in_policies.c.required
    )
    is_out = sa.exists().where(
        people.c.organization_id == who.organization_id,
        people.c.user_id == who.user_id,
        people.c.deactivated_at > 0,
    )
    own_alone, out = (await connection.execute(sa.select(required, is_out))).one()
    if row is None or out or (own_alone and row.organization_id != who.organization_id):
        raise refused("This sign-in is not good any more. Begin anew.")


async def end_sessions(connection: AsyncConnection, *which: sa.ColumnElement[bool]) -> None:
    """Ends the sessions that match, everywhere within a second."""
    found = sa.select(sessions.c.organization_id).where(*which).distinct()
    own = sa.select(sessions.c.id).where(*which)
    for organization_id in sorted((await connection.execute(found)).scalars()):
        await revoke_where(connection, organization_id, api_keys.c.id.in_(own))
    await connection.execute(sessions.delete().where(*which))


async def _end(connection: AsyncConnection, organization_id: str, session_id: str) -> None:
    await revoke_where(connection, organization_id, api_keys.c.id == session_id)
    await connection.execute(sessions.delete().where(sessions.c.id == session_id))


async def _credential(connection: AsyncConnection, session_id: str) -> ApiKey | None:
    """The credential of a session that nobody has ended."""
    query = api_keys.select().where(api_keys.c.id == session_id, api_keys.c.revoked_at == 0)
    row = (await connection.execute(query.with_for_update())).first()
    return key_of(row) if row is not None else None


def _printable(text: str) -> str:
    return "".join(character for character in text if character.isprintable()).strip()
