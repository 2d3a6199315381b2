"""Every query on the networks of organizations."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.db import Database
from windlass.users.allowed_networks.domain import AllowedNetworks, NetworksChange
from windlass.users.client_demands.tables import allowed_networks as table
from windlass.users.keys.revocation import note_organization, take_turn


class AllowedNetworksStore:
    """Networks by organization. Where they change, keys are asked about again."""

    def __init__(self, database: Database):
        self._database = database

    async def get(self, organization_id: str) -> AllowedNetworks:
        """The organization's."""
        async with self._database.autocommit() as connection:
            return await _get(connection, organization_id)

    async def put(self, organization_id: str, change: NetworksChange) -> AllowedNetworks:
        """Sets the organization's, and returns what was; raises what `NetworksChange` does."""
        async with self._database.begin() as connection:
            # Two at once would each be admitted by what the other takes away.
            await take_turn(connection, organization_id, of="networks")
            before = await _get(connection, organization_id)
            change.require_admitted(before)
            change.require_way_in()
            wanted = change.wanted
            values = {"networks": list(wanted.networks), "updated_at": wanted.updated_at}
            statement = insert(table).values(id=organization_id, **values)
            await connection.execute(
                statement.on_conflict_do_update(index_elements=["id"], set_=values)
            )
            await note_organization(connection, organization_id)
        return before

    async def clear(self, organization_id: str) -> AllowedNetworks:
        """Has the credentials taken from anywhere, for the server's machine; returns what was."""
        async with self._database.begin() as connection:
            await take_turn(connection, organization_id, of="networks")
            before = await _get(connection, organization_id)
            await connection.execute(table.delete().where(table.c.id == organization_id))
            await note_organization(connection, organization_id)
        return before


async def _get(connection: AsyncConnection, organization_id: str) -> AllowedNetworks:
    query = sa.select(table.c.networks, table.c.updated_at).where(table.c.id == organization_id)
    row = (await connection.execute(query)).first()
    return AllowedNetworks() if row is None else AllowedNetworks(tuple(row[0]), row[1])
