"""Reading and setting the quotas of organizations and projects."""

from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.api.users.v1 import users_pb2 as pb
from windlass.bounds import MAX_QUOTA
from windlass.core.db import Database
from windlass.core.errors import InvalidArgument
from windlass.core.quotas import Quota, Quotas, bounds, set_bound, stored_bytes
from windlass.core.rpc import audited
from windlass.core.rpc.auth import Principal
from windlass.users.store import TenantStore, unknown_project


class TenantQuotas:
    """The quotas of tenants, as their owners and operators see them."""

    def __init__(self, database: Database, tenants: TenantStore, quotas: Quotas):
        self._database = database
        self._tenants = tenants
        self._quotas = quotas

    async def get(self, principal: Principal, project_id: str) -> pb.Quotas:
        """Returns the quotas of the organization, or of a project of it; raises NotFound."""
        organization = principal.organization_id
        owners = principal.may("projects.write") or principal.may("platform.read")
        if not owners and project_id not in ("", principal.project_id):
            raise unknown_project(project_id)
        if project_id:
            await self._tenants.project(organization, project_id)
        scope = project_id or organization
        async with self._database.autocommit() as connection:
            rows = await connection.execute(bounds.select().where(bounds.c.scope_id == scope))
            given = {row.name: row.bound for row in rows}
            used = {Quota.STORED_BYTES: (await stored_bytes(connection, (scope,))).get(scope, 0)}
        if not project_id:
            used[Quota.PROJECTS] = await self._tenants.count_projects(organization)
        return pb.Quotas(
            quotas=[
                pb.Quota(
                    name=quota,
                    bound=given.get(quota, self._quotas.default(quota, project=bool(project_id))),
                    set=quota in given,
                    used=used.get(quota),
                )
                for quota in Quota
                if not (project_id and quota is Quota.PROJECTS)
            ]
        )

    async def put(
        self, principal: Principal, project_id: str, name: str, bound: int | None
    ) -> pb.Quotas:
        """Sets one, or goes back to the default; raises InvalidArgument, NotFound."""
        organization = principal.organization_id
        if name not in list(Quota) or (project_id and name == Quota.PROJECTS):
            known = ", ".join(quota for quota in Quota if not project_id or quota != "projects")
            raise InvalidArgument(f"name must be one of {known}.", param="name")
        if bound is not None and not 0 <= bound <= MAX_QUOTA:
            raise InvalidArgument(f"bound must be between 0 and {MAX_QUOTA}.", param="bound")
        quota = Quota(name)
        if project_id:
            await self._tenants.project(organization, project_id)
        async with self._database.begin() as connection:
            # Waits for transactions that count by the old bounds.
            held = await self._quotas.hold(connection, quota, organization, "")
            most = held.organization
            if project_id and most and bound is not None and not 1 <= bound <= most:
                raise InvalidArgument(
                    f"The organization's quota of {name} is {most}; "
                    "a project's must be between 1 and that.",
                    param="bound",
                )
            await self._note(connection, project_id or organization, quota, bound)
            await set_bound(connection, project_id or organization, quota, bound)
        return await self.get(principal, project_id)

    async def _note(
        self, connection: AsyncConnection, scope_id: str, quota: Quota, bound: int | None
    ) -> None:
        """Has the audit log tell the bound of before, and which there is now."""
        query = bounds.select().where(bounds.c.scope_id == scope_id, bounds.c.name == quota)
        row = (await connection.execute(query)).first()
        named = {"scope_id": scope_id, "name": quota}
        before = None if row is None else {**named, "bound": row.bound}
        audited.change(before, None if bound is None else {**named, "bound": bound})
