"""A row of a tenant in every table that holds anything of tenants, made from the tables alone.

Nothing runs on them: what a loop would do with an engine or an assignment of no cluster does not
matter to who only counts rows. A new table is filled as it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from windlass.core.leaving.claims import Fate, Scope, TableClaim
from windlass.migrations.tables import load_claims, load_tables

# Tables whose rows are found by an id that is the organization's or a project's.
OF_ORGANIZATIONS = frozenset({
    "users_organizations.id", "users_key_policies.id", "users_sign_in_policies.id",
    "users_directories.id", "users_allowed_networks.id",
})  # fmt: skip
OF_PROJECTS = frozenset({
    "users_projects.id", "users_model_policies.id", "quotas_bounds.scope_id",
    "quotas_stored.scope_id",
})  # fmt: skip
# Rows that go with another, by the column that names it.
PARENTS = {"job_id": "jobs_jobs", "group_id": "users_groups", "export_id": "core_exports"}


@dataclass(frozen=True)
class RowTenant:
    """A tenant that is nothing but rows: whose ids have one word, and everything else another."""

    number: int

    @property
    def ids(self) -> str:
        """Returns the word of its ids."""
        return f"idword{self.number}"

    @property
    def mark(self) -> str:
        """Returns the word of all that it named or wrote."""
        return f"nameword{self.number}"

    @property
    def scope(self) -> Scope:
        """Returns the whole of it."""
        return Scope(f"org-{self.ids}", (f"proj-{self.ids}",), whole=True)

    def row(self, table: sa.Table) -> dict[str, Any]:
        """A row of a table, with a value in every column that is not numbered by the database."""
        return {
            one.name: self._value(one)
            for one in table.columns
            if one.identity is None and one.autoincrement is not True
        }

    def _value(self, column: sa.Column[Any]) -> Any:
        place = f"{column.table.name}.{column.name}"
        if column.name == "organization_id" or place in OF_ORGANIZATIONS:
            return self.scope.organization_id
        if column.name == "project_id" or place in OF_PROJECTS:
            return self.scope.project_ids[0]
        if column.name == "project_ids":
            return list(self.scope.project_ids)
        kind: Any = column.type
        if isinstance(kind, ARRAY):
            return [self._plain(kind.item_type, self.mark)]
        if column.name == "id" or column.name.endswith("_id"):
            referred = next((key.column.table.name for key in column.foreign_keys), "")
            parent = referred or PARENTS.get(column.name, column.table.name)
            return self._plain(kind, f"{self.ids}-{parent}")
        return self._plain(kind, self.mark)

    def _plain(self, kind: Any, text: str) -> Any:
        if isinstance(kind, sa.JSON):
            return {"said": text}
        if isinstance(kind, sa.LargeBinary):
            return text.encode()
        if isinstance(kind, sa.DateTime):
            return datetime.now(UTC)
        if isinstance(kind, sa.Boolean):
            return False
        return text if isinstance(kind, sa.Text) else self.number


def tenant_claims() -> Iterator[TableClaim]:
    """Claims of every table in which an erasure deletes or changes something."""
    load_tables()
    for claims in load_claims():
        for one in claims.tables:
            if one.fate is Fate.ERASED or one.values:
                yield one
