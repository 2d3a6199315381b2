"""Demands on the certificate and address of a client, for an organization's credentials."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.users.client_demands.tables import active_certificates as active
from windlass.users.client_demands.tables import allowed_networks, certificates
from windlass.users.tables import organizations


async def demanded(
    connection: AsyncConnection, organization_id: str, project_id: str
) -> tuple[tuple[bytes, ...], ...]:
    """The active certificates of an organization and those of a project of it, where it has some.

    A client satisfies both: a project narrows what its organization demands.
    """
    query = (
        sa.select(active.c.project_id, certificates.c.der)
        .join(certificates, certificates.c.id == active.c.certificate_id)
        .where(
            active.c.organization_id == organization_id,
            active.c.project_id.in_({"", project_id}),
        )
        .order_by(active.c.project_id, certificates.c.id)
    )
    found: dict[str, list[bytes]] = {}
    for row in await connection.execute(query):
        found.setdefault(row.project_id, []).append(row.der)
    return tuple(map(tuple, found.values()))


def with_networks(organization_id: str) -> sa.Select[Any]:
    """Organizations, each with the networks that the credentials of one of them are taken from.

    So whoever asks whether an organization lives hears of them without another question.
    """
    its = sa.literal(organization_id) == allowed_networks.c.id
    return sa.select(organizations.c.id, allowed_networks.c.networks).select_from(
        organizations.outerjoin(allowed_networks, its)
    )
