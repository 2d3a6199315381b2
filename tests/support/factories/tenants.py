"""Two organizations, three projects and a key of every role, made through the front door."""

from dataclasses import dataclass
from typing import Any

import httpx
from tests.support.processes.windlass import Windlass


@dataclass(frozen=True)
class Caller:
    """Somebody with a key."""

    windlass: Windlass
    organization_id: str
    project_id: str
    role: str
    key: str
    key_id: str

    def http(self) -> httpx.Client:
        """Raw HTTP with the key."""
        return self.windlass.http(self.key)

    def openai(self) -> Any:
        """openai-python with the key, without its retries."""
        return self.windlass.openai(self.key, max_retries=0)


@dataclass(frozen=True)
class Tenants:
    """Callers; `sibling` belongs to another project in the organization of `member`."""

    admin: Caller
    owner: Caller
    reader: Caller
    project_owner: Caller
    member: Caller
    sibling: Caller
    stranger: Caller
    strange_member: Caller
    # Of the other roles, each in Acme or its main project.
    others: tuple[Caller, ...]

    @property
    def roles(self) -> tuple[Caller, ...]:
        """Returns one caller of each role."""
        known = (self.admin, self.owner, self.reader, self.project_owner, self.member)
        return (*known, *self.others)

    @property
    def outsiders(self) -> tuple[Caller, ...]:
        """Returns the callers for whom what belongs to `member` does not exist."""
        return (self.sibling, self.stranger, self.strange_member)


def make_tenants(windlass: Windlass) -> Tenants:
    """Creates all callers."""
    admin = _caller(windlass, windlass.owner_key, role="platform_admin")
    owner = _owner(admin, "Acme")
    stranger = _owner(admin, "Bolt")
    main = new_project(owner, "Main")
    side = new_project(owner, "Side")
    project_owner = new_key(owner, "project_owner", main)
    return Tenants(
        admin=admin,
        owner=owner,
        reader=new_key(owner, "organization_reader"),
        project_owner=project_owner,
        member=new_key(project_owner, "project_member", main),
        sibling=new_key(owner, "project_member", side),
        stranger=stranger,
        strange_member=new_key(stranger, "project_member", new_project(stranger, "Theirs")),
        others=(
            new_key(owner, "organization_auditor"),
            new_key(owner, "organization_billing"),
            new_key(admin, "cluster_operator"),
            new_key(project_owner, "project_viewer", main),
        ),
    )


def new_project(owner: Caller, title: str) -> str:
    """Creates a project and returns its id."""
    with owner.http() as http:
        return str(_json(http.post("/v1/projects", json={"title": title}))["id"])


def new_key(by: Caller, role: str, project_id: str = "", **options: Any) -> Caller:
    """Returns a caller with a new key that `by` created."""
    body = {"name": role, "role": role, "project_id": project_id, **options}
    with by.http() as http:
        made = _json(http.post("/v1/api_keys", json=body))
    return _caller(by.windlass, made["value"], role=role)


def _owner(admin: Caller, title: str) -> Caller:
    with admin.http() as http:
        organization = _json(http.post("/v1/organizations", json={"title": title}))
        http.headers["OpenAI-Organization"] = organization["id"]
        body = {"name": "owner", "role": "organization_owner"}
        made = _json(http.post("/v1/api_keys", json=body))
    return _caller(admin.windlass, made["value"], role="organization_owner")


def _caller(windlass: Windlass, key: str, *, role: str) -> Caller:
    with windlass.http(key) as http:
        principal = _json(http.get("/v1/me"))["principal"]
    assert principal["roles"] == [role]
    return Caller(
        windlass,
        principal["organization_id"],
        principal["project_id"] or "",
        role,
        key,
        principal["key_id"],
    )


def _json(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()
