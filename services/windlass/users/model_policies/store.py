"""Every query on the models that projects are for."""

from dataclasses import asdict, dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.db import Database
from windlass.users.keys.restrictions import DENY_LIST
from windlass.users.keys.revocation import note, note_organization, of_operators
from windlass.users.tables import model_policies


@dataclass(frozen=True, slots=True)
class ModelPolicy:
    """The models of a project: no other ones, or any but these."""

    # Of the project.
    id: str
    organization_id: str
    mode: str
    model_ids: tuple[str, ...]
    updated_at: int


class ModelPolicies:
    """Policies by project. A change has the keys that act there asked about again."""

    def __init__(self, database: Database):
        self._database = database

    async def get(self, organization_id: str, project_id: str) -> ModelPolicy:
        """The policy of a project; one that denies nothing where nobody made any."""
        query = model_policies.select().where(_its(organization_id, project_id))
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            return ModelPolicy(project_id, organization_id, DENY_LIST, (), 0)
        return ModelPolicy(
            row.id, row.organization_id, row.mode, tuple(row.model_ids), row.updated_at
        )

    async def put(self, policy: ModelPolicy) -> ModelPolicy:
        """Stores a policy in the place of another."""
        statement = insert(model_policies).values(asdict(policy))
        changed = {name: statement.excluded[name] for name in ("mode", "model_ids", "updated_at")}
        async with self._database.begin() as connection:
            await connection.execute(
                statement.on_conflict_do_update(index_elements=["id"], set_=changed)
            )
            await _tell(connection, policy.organization_id)
        return policy

    async def delete(self, organization_id: str, project_id: str) -> None:
        """Removes a policy; idempotent."""
        where = _its(organization_id, project_id)
        async with self._database.begin() as connection:
            await connection.execute(model_policies.delete().where(where))
            await _tell(connection, organization_id)


def _its(organization_id: str, project_id: str) -> sa.ColumnElement[bool]:
    return sa.and_(
        model_policies.c.id == project_id, model_policies.c.organization_id == organization_id
    )


async def _tell(connection: AsyncConnection, organization_id: str) -> None:
    """Names the keys that may act in a project: its organization's, and the platform's."""
    await note_organization(connection, organization_id)
    await note(connection, of_operators())
