"""Codes of programs, and devices that wait to be let in."""

import hmac
import secrets
from dataclasses import asdict, dataclass

import sqlalchemy as sa

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.errors import InvalidArgument, NotFound, PermissionDenied, ResourceExhausted
from windlass.core.rpc import auth
from windlass.users.identity.tables import device_sign_ins, sign_in_codes
from windlass.users.sign_in.domain import SignedIn
from windlass.users.sign_in.flows import Client
from windlass.users.sign_in.issuer_answers import challenge_of, fingerprint

CODE_SECONDS = 60
DEVICE_SECONDS = 900
POLL_SECONDS = 5
# That wait at once, of the whole installation: anybody may begin one.
MOST_DEVICES = 10_000
DEVICE_LENGTH = 100
# Neither vowels nor what looks alike (RFC 8628, 6.1).
_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"


@dataclass(frozen=True, slots=True)
class WaitingDevice:
    """A device that somebody is asked to let in."""

    user_code: str
    device: str
    address: str


class PendingSignIns:
    """Sign-ins that were begun here and are finished by whoever holds a code."""

    def __init__(self, database: Database):
        self._database = database

    async def give_code(self, who: SignedIn, client: Client) -> str:
        """A code by which the program of a client gets a session, once and within a minute."""
        code = secrets.token_urlsafe(32)
        row = {
            "digest": fingerprint(code),
            "signed_in": asdict(who),
            "redirect_uri": client.redirect_uri,
            "code_challenge": client.code_challenge,
            "expires_at": now_seconds() + CODE_SECONDS,
        }
        async with self._database.begin() as connection:
            await connection.execute(sign_in_codes.insert().values(row))
        return code

    async def redeem(self, code: str, verifier: str, redirect_uri: str) -> SignedIn:
        """The person who signed in for a code, which is used up by this; raises InvalidArgument."""
        taken = (
            sign_in_codes.delete()
            .where(sign_in_codes.c.digest == fingerprint(code))
            .returning(*sign_in_codes.c)
        )
        async with self._database.begin() as connection:
            row = (await connection.execute(taken)).first()
        fits = (
            row is not None
            and row.expires_at > now_seconds()
            and row.redirect_uri == redirect_uri
            and hmac.compare_digest(row.code_challenge, challenge_of(verifier))
        )
        if row is None or not fits:
            raise InvalidArgument(
                "The code is not good, or was used.", reason="invalid_grant", param="code"
            )
        return SignedIn(**row.signed_in)

    async def begin_device(self, device: str) -> tuple[str, str]:
        """A device's code and the code that it shows; raises ResourceExhausted."""
        device_code = secrets.token_urlsafe(32)
        drawn = "".join(secrets.choice(_LETTERS) for _ in range(8))
        row = {
            "digest": fingerprint(device_code),
            "user_code": drawn,
            "device": "".join(filter(str.isprintable, device))[:DEVICE_LENGTH],
            "address": auth.client_address.get(),
            "expires_at": now_seconds() + DEVICE_SECONDS,
        }
        count = sa.select(sa.func.count()).select_from(device_sign_ins)
        async with self._database.begin() as connection:
            if (await connection.execute(count)).scalar_one() >= MOST_DEVICES:
                raise ResourceExhausted("Too many devices wait to be let in. Try again later.")
            await connection.execute(device_sign_ins.insert().values(row))
        return device_code, f"{drawn[:4]}-{drawn[4:]}"

    async def device(self, user_code: str) -> WaitingDevice:
        """The device that shows a code and waits; raises NotFound."""
        query = device_sign_ins.select().where(_waits(user_code))
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            raise _no_device()
        return WaitingDevice(user_code, row.device, row.address)

    async def decide_device(self, user_code: str, who: SignedIn | None) -> None:
        """Lets a device in as a person, or not at all; raises NotFound."""
        decided = {"denied": True} if who is None else {"signed_in": asdict(who)}
        statement = device_sign_ins.update().where(_waits(user_code)).values(decided)
        async with self._database.begin() as connection:
            if not (await connection.execute(statement)).rowcount:
                raise _no_device()

    async def poll_device(self, device_code: str) -> SignedIn:
        """The person who has let a device in, once.

        Raises InvalidArgument and PermissionDenied with the reasons of RFC 8628, 3.5.
        """
        which = device_sign_ins.c.digest == fingerprint(device_code)
        now = now_seconds()
        async with self._database.begin() as connection:
            query = device_sign_ins.select().where(which).with_for_update()
            row = (await connection.execute(query)).first()
            if row is None or row.expires_at <= now:
                raise InvalidArgument(
                    "This sign-in is over. Begin anew.",
                    reason="expired_token",
                    param="device_code",
                )
            if row.signed_in is None and not row.denied:
                await connection.execute(
                    device_sign_ins.update().where(which).values(polled_at=now)
                )
            else:
                await connection.execute(device_sign_ins.delete().where(which))
        if row.denied:
            raise PermissionDenied("Somebody has refused this device.", reason="access_denied")
        if row.signed_in is None:
            if now - row.polled_at < POLL_SECONDS - 1:
                raise InvalidArgument(
                    f"Ask every {POLL_SECONDS} seconds.", reason="slow_down", param="device_code"
                )
            raise InvalidArgument(
                "Nobody has let this device in yet.",
                reason="authorization_pending",
                param="device_code",
            )
        return SignedIn(**row.signed_in)

    async def sweep(self) -> None:
        """Removes what was not finished in time."""
        now = now_seconds()
        async with self._database.begin() as connection:
            for table in (sign_in_codes, device_sign_ins):
                await connection.execute(table.delete().where(table.c.expires_at <= now))


def read_user_code(text: str) -> str:
    """The letters of a code as a person has typed it."""
    return "".join(one for one in text.upper() if one in _LETTERS)


def _waits(user_code: str) -> sa.ColumnElement[bool]:
    return sa.and_(
        device_sign_ins.c.user_code == user_code,
        device_sign_ins.c.signed_in.is_(None),
        ~device_sign_ins.c.denied,
        device_sign_ins.c.expires_at > now_seconds(),
    )


def _no_device() -> NotFound:
    return NotFound("No device that waits shows this code.", param="user_code")
