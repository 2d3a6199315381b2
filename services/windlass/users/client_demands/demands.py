"""Demands on the certificate of a client, for the credentials of an organization."""

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.users.client_demands.tables import active_certificates as active
from windlass.users.client_demands.tables import certificates


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
