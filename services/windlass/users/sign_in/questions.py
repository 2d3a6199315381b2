"""Questions that a person answers before a sign-in ends.

Each is a row and is answered once, so that whatever ends sign-ins ends it too.
"""

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import sqlalchemy as sa

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.users.identity.tables import sign_in_questions
from windlass.users.sign_in.domain import IssuerPerson, SignedIn
from windlass.users.sign_in.flows import FLOW_SECONDS, Client, lost
from windlass.users.sign_in.issuer_answers import fingerprint


@dataclass(frozen=True, slots=True)
class PendingQuestion:
    """A question to a person: which organization, whether to join one or to let a device in."""

    person: IssuerPerson
    # From organizations to the person's id in each.
    choices: Mapping[str, str]
    client: Client
    # The digest of an invite's link, which is accepted by the answer; empty: of none.
    invite: bytes = b""

    def chosen(self, organization_id: str) -> SignedIn:
        """The person within an organization that they were asked about; raises InvalidArgument."""
        if organization_id not in self.choices:
            raise lost()
        return self.person.within(organization_id, self.choices[organization_id])


class Questions:
    """Questions that wait for their answers."""

    def __init__(self, database: Database):
        self._database = database

    async def ask(self, question: PendingQuestion) -> tuple[bytes, str]:
        """Stores a question; returns what the browser keeps and what its page sends along."""
        flow, confirmation = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        row = {
            "digest": fingerprint(flow),
            "confirmation": fingerprint(confirmation),
            "signed_in": asdict(question.person),
            "choices": dict(question.choices),
            "client": asdict(question.client),
            "invite": question.invite,
            "expires_at": now_seconds() + FLOW_SECONDS,
        }
        async with self._database.begin() as connection:
            await connection.execute(sign_in_questions.insert().values(row))
        return flow.encode(), confirmation

    async def take(self, flow: bytes, confirmation: str) -> PendingQuestion:
        """The question that is answered, which is used up by this; raises InvalidArgument."""
        table = sign_in_questions.c
        taken = (
            sign_in_questions.delete()
            .where(
                # A page of another site, which has not seen it, uses up nothing.
                table.digest == fingerprint(flow.decode(errors="replace")),
                table.confirmation == fingerprint(confirmation),
                table.expires_at > now_seconds(),
            )
            .returning(*table)
        )
        async with self._database.begin() as connection:
            row = (await connection.execute(taken)).first()
        if row is None:
            raise lost()
        said = row.signed_in
        lists = {name: tuple(said[name]) for name in ("groups", "amr")}
        person = IssuerPerson(**{**said, **lists})
        return PendingQuestion(person, row.choices, Client(**row.client), row.invite)

    async def sweep(self) -> None:
        """Removes what nobody has answered in time."""
        late = sign_in_questions.c.expires_at <= now_seconds()
        async with self._database.begin() as connection:
            await connection.execute(sa.delete(sign_in_questions).where(late))
