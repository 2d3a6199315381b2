"""Entries of the audit log as openai-python has them."""

from collections.abc import Awaitable, Callable
from typing import Any

from openai.resources.admin.organization import AsyncOrganization
from openai.types.admin.organization import AuditLogListResponse
from tests.support.clients.openai_admin import strict
from tests.support.waiting import until

Entry = AuditLogListResponse


def details(entry: Entry) -> Any:
    """What an entry has under its type's name."""
    return entry.to_dict(mode="python")[entry.type]


async def entries(admin: AsyncOrganization, **asked: Any) -> list[Entry]:
    return [strict(one) async for one in admin.audit_logs.list(**asked)]


async def newest(admin: AsyncOrganization, kind: str) -> Entry:
    """The newest entry, once it is of a type."""

    async def found() -> Entry | None:
        page = (await admin.audit_logs.list(limit=1)).data
        return page[0] if page and page[0].type == kind else None

    entry = await until(found)
    assert entry is not None
    return strict(entry)


class Steps:
    """Calls of the owner, each of which the log has an entry of a type for."""

    def __init__(self, admin: AsyncOrganization) -> None:
        self.admin = admin
        self.seen: set[str] = set()

    async def __call__(self, kind: str, call: Callable[[], Awaitable[Any]]) -> tuple[Any, Any]:
        """Returns what the call answers, and the details of its entry."""
        made = await call()
        entry = await newest(self.admin, kind)
        assert entry.actor
        assert entry.actor.api_key
        assert entry.actor.api_key.user
        assert entry.actor.api_key.user.id == "owner"
        self.seen.add(kind)
        return made, details(entry)
