"""People whom an organization knows, as one table: its members, and whom its directory names."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from windlass.users.directory.domain import Email, Person, Profile
from windlass.users.domain import SERVICE_ACCOUNT
from windlass.users.tables import members, people

_NONE = sa.literal_column("'[]'::jsonb", JSONB)
_NAMELESS = sa.literal_column("'{}'::jsonb", JSONB)
# No parameter, so that the planner knows which index the rows are in.
_EMPTY: sa.ColumnElement[str] = sa.literal_column("''")
# The parameter of every query on these people.
_OWN = sa.bindparam("organization_id", type_=sa.Text)


def _of_people(user_name: sa.ColumnElement[str]) -> sa.Select[Any]:
    said = people.c.managed_at > 0
    address = sa.func.jsonb_build_object("value", people.c.email, "primary", True)
    addresses = sa.case((people.c.email != "", sa.func.jsonb_build_array(address)), else_=_NONE)
    attributes = people.c.attributes
    return sa.select(
        people.c.user_id.label("id"),
        user_name.label("user_name"),
        people.c.external_id,
        sa.case((said, attributes["display_name"].astext), else_=people.c.name).label(
            "display_name"
        ),
        sa.case((said, attributes["name"]), else_=_NAMELESS).label("name"),
        sa.case((said, attributes["emails"]), else_=addresses).label("emails"),
        (people.c.deactivated_at == 0).label("active"),
        sa.and_(said, attributes["active"].astext.is_(None)).label("unsaid"),
        people.c.managed_at,
        people.c.version,
        people.c.created_at,
        people.c.updated_at,
    )


def _of_members() -> sa.Select[Any]:
    is_known = sa.exists().where(
        people.c.organization_id == members.c.organization_id,
        people.c.user_id == members.c.user_id,
    )
    since = sa.func.min(members.c.created_at)
    return (
        sa.select(
            members.c.user_id,
            members.c.user_id,
            sa.literal(""),
            sa.func.max(members.c.title),
            _NAMELESS,
            _NONE,
            sa.true(),
            sa.false(),
            sa.literal(0, sa.BigInteger),
            sa.literal(0, sa.BigInteger),
            since,
            since,
        )
        .where(
            members.c.organization_id == _OWN,
            members.c.kind != SERVICE_ACCOUNT,
            ~is_known,
        )
        .group_by(members.c.user_id)
    )


def _known_people() -> sa.Subquery:
    own = people.c.organization_id == _OWN
    named = _of_people(people.c.user_name).where(own, people.c.user_name != _EMPTY)
    unnamed = _of_people(people.c.user_id).where(own, people.c.user_name == _EMPTY)
    return sa.union_all(named, unnamed, _of_members()).subquery("known")


# Columns: id, those of a profile, managed_at, version, created_at, updated_at; the parameter is
# `organization_id`. Somebody of whom a directory has said nothing has the id as user name. The
# parts stand apart so that a look-up by name uses its index.
KNOWN_PEOPLE = _known_people()


def person_of(row: Any) -> Person:
    """The person of a row of that table."""
    emails = [Email(one["value"], one.get("type", ""), one.get("primary")) for one in row.emails]
    profile = Profile(
        row.user_name,
        row.external_id,
        row.display_name,
        row.name,
        tuple(emails),
        None if row.unsaid else row.active,
    )
    return Person(row.id, profile, row.managed_at, row.version, row.created_at, row.updated_at)
