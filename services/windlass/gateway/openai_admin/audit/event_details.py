"""Details of events as OpenAI has them, each under the name of its type."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.rbac.v1 import rbac_pb2 as pb
from windlass.gateway.openai.rendering import Json
from windlass.policy import openai_role

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event of ours, its details read."""

    row: pb.AuditEvent
    before: Fields
    after: Fields

    @classmethod
    def of(cls, row: pb.AuditEvent) -> "LoggedEvent":
        """An event as the log has it."""
        return cls(row, _read(row.before), _read(row.after))

    @property
    def action(self) -> str:
        """Full RPC name."""
        return self.row.action

    @property
    def kind(self) -> str:
        """The kind of what changed."""
        return str(self.after.get("kind") or self.before.get("kind") or "")


def _read(text: str) -> Fields:
    found = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}


def _without_none(**values: Any) -> Json:
    return {name: value for name, value in values.items() if value is not None}


def identified(event: LoggedEvent) -> Json:
    """The id alone."""
    return {"id": event.row.resource}


def named(event: LoggedEvent) -> Json:
    """The id of something and its name."""
    name = event.after.get("name") or event.before.get("name")
    return _without_none(id=event.row.resource, name=name)


def certificates(event: LoggedEvent) -> Json:
    """A certificate that became active, or is no more."""
    return {"certificates": [named(event)]}


def networks(event: LoggedEvent) -> Json:
    """The networks that an organization's credentials are taken from, or were until now."""
    fields = event.after or event.before
    return {"id": event.row.resource, "allowed_ips": list(fields.get("networks", ()))}


def registered(event: LoggedEvent) -> Json:
    """The id of something, and what it is."""
    data = {name: value for name, value in event.after.items() if name != "id"}
    return {"id": event.row.resource, "data": data}


def changed(event: LoggedEvent) -> Json:
    """The id of something, and what it is now."""
    data = {name: value for name, value in event.after.items() if name != "id"}
    return {"id": event.row.resource, "changes_requested": data}


def rule_made(event: LoggedEvent) -> Json:
    """A federation rule, its provider, and what it gives."""
    return registered(event) | _provider(event.after)


def rule_changed(event: LoggedEvent) -> Json:
    """A federation rule, its provider, and what it gives now."""
    return changed(event) | _provider(event.after)


def rule_ended(event: LoggedEvent) -> Json:
    """A federation rule, its provider, and whose tokens it gave."""
    return {
        **identified(event),
        **_provider(event.before),
        "project_id": event.before.get("project_id", ""),
        "service_account_id": event.before.get("service_account_id", ""),
    }


def _provider(fields: Fields) -> Json:
    return {"identity_provider_id": fields.get("identity_provider_id", "")}


def invited(event: LoggedEvent) -> Json:
    """An invite and its role; the address is in no log."""
    role = event.after.get("role")
    return {"id": event.row.resource, "data": {"role": openai_role(role)} if role else {}}


def nothing(_: LoggedEvent) -> Json:
    """No details."""
    return {}


def failure(event: LoggedEvent) -> Json:
    """The reason why something was refused or failed."""
    return {"error_code": event.row.reason, "error_message": event.row.outcome}


def key_made(event: LoggedEvent) -> Json:
    """A key, and what it may do."""
    return {"id": event.row.resource, "data": {"scopes": _scopes(event.after)}}


def key_changed(event: LoggedEvent) -> Json:
    """Scopes that a key has now, and how long it lives from then on."""
    asked: Json = {}
    if "scopes" in event.after:
        asked["scopes"] = _scopes(event.after)
    if event.after.get("expires_at"):
        asked["expires_in_seconds"] = event.after["expires_at"] - event.row.at_ms // 1000
    return {"id": event.row.resource, "changes_requested": asked}


def _scopes(fields: Fields) -> list[str]:
    return [str(one) for one in fields.get("scopes", [])]


def project_made(event: LoggedEvent) -> Json:
    """A project and its title."""
    title = event.after.get("title", "")
    return {"id": event.row.resource, "data": {"name": title, "title": title}}


def project_changed(event: LoggedEvent) -> Json:
    """A project's title."""
    return {
        "id": event.row.resource,
        "changes_requested": _without_none(title=event.after.get("title")),
    }


def role_given(event: LoggedEvent) -> Json:
    """A member and the role that they got."""
    return {"id": event.row.resource, "data": _role(event)}


def role_changed(event: LoggedEvent) -> Json:
    """A member and the role that they have now."""
    return {"id": event.row.resource, "changes_requested": _role(event)}


def _role(event: LoggedEvent) -> Json:
    role = event.after.get("role")
    return {} if role is None else {"role": openai_role(role)}


def group_made(event: LoggedEvent) -> Json:
    """A group and its name."""
    return {"id": event.row.resource, "data": {"group_name": event.after.get("name", "")}}


def group_changed(event: LoggedEvent) -> Json:
    """A group's name."""
    asked = _without_none(group_name=event.after.get("name"))
    return {"id": event.row.resource, "changes_requested": asked}


def role_made(event: LoggedEvent) -> Json:
    """A role and what it grants."""
    return {
        "id": event.row.resource,
        "role_name": event.after.get("name", ""),
        "permissions": event.after.get("permissions", []),
        **_scope(event.after),
    }


def role_edited(event: LoggedEvent) -> Json:
    """A role's name, and what it grants now and no more."""
    before, after = (set(one.get("permissions", [])) for one in (event.before, event.after))
    return {
        "id": event.row.resource,
        "changes_requested": _without_none(
            role_name=event.after.get("name"),
            description=event.after.get("description"),
            permissions_added=sorted(after - before) or None,
            permissions_removed=sorted(before - after) or None,
            **_scope(event.after),
        ),
    }


def assignment(event: LoggedEvent) -> Json:
    """A role, who has it, and where."""
    given = event.after or event.before
    group = given.get("group_id", "")
    return {
        "id": event.row.resource,
        "principal_id": group or given.get("user_id", ""),
        "principal_type": "group" if group else "user",
        **_scope(given),
    }


def _scope(fields: Fields) -> Json:
    project = fields.get("project_id", "")
    return {
        "resource_id": project or fields.get("organization_id", ""),
        "resource_type": "api.project" if project else "api.organization",
    }


def grant(event: LoggedEvent) -> Json:
    """A model and the project that may use it."""
    return {
        "id": event.row.resource,
        "data": {
            "project_id": event.after.get("project_id", ""),
            "fine_tuned_model_checkpoint": event.after.get("model", ""),
        },
    }
