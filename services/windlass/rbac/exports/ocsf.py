"""Audit events as OCSF 1.9 (https://schema.ocsf.io). Pure.

Whom a change concerns decides its class: people, groups and roles have classes of their own, a way
into a cluster is a session, and all else is a call of the API.
"""

import json
from collections.abc import Mapping
from typing import Any

Fields = Mapping[str, Any]

_VERSION = "1.9.0"
_IAM, _APPLICATION = (3, "Identity & Access Management"), (6, "Application Activity")
_AUTHENTICATION, _SESSION, _GROUP, _USER, _ROLE = 3002, 3003, 3006, 3007, 3008
_API = 6003
_CLASSES = {
    _AUTHENTICATION: (*_IAM, "Authentication"),
    _SESSION: (*_IAM, "Authorize Session"),
    _GROUP: (*_IAM, "Group Management"),
    _USER: (*_IAM, "User Management"),
    _ROLE: (*_IAM, "Role Management"),
    _API: (*_APPLICATION, "API Activity"),
}
_OTHER = (99, "Other")
_CREATE, _UPDATE, _DELETE = (1, "Create"), (2, "Update"), (3, "Delete")
_API_VERBS = {
    "Create": (1, "Create"), "Register": (1, "Create"), "Add": (1, "Create"),
    "Get": (2, "Read"), "List": (2, "Read"), "Query": (2, "Read"), "Read": (2, "Read"),
    "Watch": (2, "Read"), "Verify": (2, "Read"), "Reveal": (2, "Read"),
    "Put": (3, "Update"), "Update": (3, "Update"), "Rotate": (3, "Update"),
    "Rekey": (3, "Update"), "Archive": (3, "Update"), "Pause": (3, "Update"),
    "Resume": (3, "Update"), "Cancel": (3, "Update"), "Complete": (3, "Update"),
    "Commit": (3, "Update"),
    "Delete": (4, "Delete"), "Remove": (4, "Delete"), "Revoke": (4, "Delete"),
    "Unregister": (4, "Delete"), "Abort": (4, "Delete"),
    # Of HTTP, and of Kubernetes.
    "GET": (2, "Read"), "POST": (1, "Create"), "PUT": (3, "Update"), "PATCH": (3, "Update"),
    "DELETE": (4, "Delete"), "create": (1, "Create"), "get": (2, "Read"), "list": (2, "Read"),
    "watch": (2, "Read"), "update": (3, "Update"), "patch": (3, "Update"),
    "delete": (4, "Delete"), "deletecollection": (4, "Delete"),
}  # fmt: skip
_SERVICE = "windlass.api.users.v1."
_PUT_MEMBER = f"{_SERVICE}UsersService/PutMember"
_REMOVE_MEMBER = f"{_SERVICE}UsersService/RemoveMember"
# RPCs of people, groups, roles and sessions, with what they do there.
_SPECIAL: dict[str, tuple[int, tuple[int, str]]] = {
    "sign_in": (_AUTHENTICATION, (1, "Logon")),
    "sign_out": (_AUTHENTICATION, (2, "Logoff")),
    _REMOVE_MEMBER: (_USER, _DELETE),
    f"{_SERVICE}RolesService/CreateRole": (_ROLE, _CREATE),
    f"{_SERVICE}RolesService/UpdateRole": (_ROLE, _UPDATE),
    f"{_SERVICE}RolesService/DeleteRole": (_ROLE, _DELETE),
    f"{_SERVICE}GroupsService/AddToGroup": (_GROUP, (3, "Add User")),
    f"{_SERVICE}GroupsService/RemoveFromGroup": (_GROUP, (4, "Remove User")),
    f"{_SERVICE}GroupsService/DeleteGroup": (_GROUP, (5, "Delete")),
    f"{_SERVICE}GroupsService/CreateGroup": (_GROUP, (6, "Create")),
    f"{_SERVICE}GroupsService/UpdateGroup": (_GROUP, _OTHER),
    "windlass.api.sessions.v1.SessionsService/CreateAccess": (_SESSION, (1, "Assign Privileges")),
}
_ASSIGN = {
    f"{_SERVICE}RolesService/AssignRole": ((16, "Assign Roles"), (1, "Assign Privileges")),
    f"{_SERVICE}RolesService/UnassignRole": ((17, "Remove Roles"), (2, "Revoke Privileges")),
}
_SUCCESS, _FAILURE = (1, "Success"), (2, "Failure")
_INFORMATIONAL, _LOW, _MEDIUM = (1, "Informational"), (2, "Low"), (3, "Medium")
_REFUSED = frozenset({"PERMISSION_DENIED", "UNAUTHENTICATED"})


def ocsf(event: Fields) -> dict[str, Any]:
    """An event of the log, with its hash as `hash`, in OCSF."""
    before, after = _read(event["before"]), _read(event["after"])
    class_uid, (activity, activity_name) = _classified(event, before, after)
    category, category_name, class_name = _CLASSES[class_uid]
    status, status_name = _SUCCESS if event["outcome"] == "OK" else _FAILURE
    severity, severity_name = _severity(event["outcome"])
    told = {
        "metadata": {
            "version": _VERSION,
            "product": {"name": "Windlass", "vendor_name": "Windlass"},
            "uid": event["id"],
            "sequence": event["sequence"],
            "log_name": "audit",
            "tenant_uid": event["organization_id"],
        },
        "time": event["at_ms"],
        "category_uid": category,
        "category_name": category_name,
        "class_uid": class_uid,
        "class_name": class_name,
        "activity_id": activity,
        "activity_name": activity_name,
        "type_uid": class_uid * 100 + activity,
        "type_name": f"{class_name}: {activity_name}",
        "severity_id": severity,
        "severity": severity_name,
        "status_id": status,
        "status": status_name,
        "status_code": event["outcome"],
        "status_detail": event["reason"],
        "count": event["repeats"] + 1,
        "actor": _actor(event),
        "src_endpoint": _endpoint(event),
        "api": _api(event),
        **_subject(class_uid, event, after or before),
        "unmapped": {
            "project_id": event["project_id"],
            "before": before,
            "after": after,
            "details_salt": event["details_salt"],
            "details_digest": event["details_digest"],
            "hash": event["hash"].hex(),
        },
    }
    return {name: value for name, value in told.items() if value not in ("", None)}


def line(event: Fields) -> bytes:
    """The same as one line of ASCII, with its end."""
    return json.dumps(ocsf(event), separators=(",", ":")).encode() + b"\n"


def severity_of(event: Fields) -> int:
    """The severity of an event: 1 informational, 2 low, 3 medium."""
    return _severity(event["outcome"])[0]


def _classified(event: Fields, before: Fields, after: Fields) -> tuple[int, tuple[int, str]]:
    action: str = event["action"]
    if before.get("kind") == "key" and action == _REMOVE_MEMBER:
        # It ends with its owner.
        return _API, (4, "Delete")
    if action in _SPECIAL:
        return _SPECIAL[action]
    if action == _PUT_MEMBER:
        return _USER, _UPDATE if before else _CREATE
    if action in _ASSIGN:
        of_user, of_group = _ASSIGN[action]
        given = after or before
        return (_GROUP, of_group) if given.get("group_id") else (_USER, of_user)
    return _API, _API_VERBS.get(_verb(action), _OTHER)


def _verb(action: str) -> str:
    """`Create` of an RPC, `POST` of a request to the gateway, `get` of one to Kubernetes."""
    name = action.partition("/")[2]
    if not action.startswith("windlass."):
        return name.partition(" ")[0]
    end = next((n for n, one in enumerate(name) if n and one.isupper()), len(name))
    return name[:end]


def _severity(outcome: str) -> tuple[int, str]:
    if outcome in _REFUSED:
        return _MEDIUM
    return _INFORMATIONAL if outcome == "OK" else _LOW


def _actor(event: Fields) -> dict[str, Any]:
    if not event["user_id"]:
        return {"app_name": "Windlass"}
    actor: dict[str, Any] = {"user": _user(event["user_id"], event["organization_id"])}
    if event["key_id"]:
        actor["session"] = {"credential_uid": event["key_id"], "issuer": "Windlass"}
    return actor


def _user(user_id: str, organization_id: str, kind: str = "") -> dict[str, Any]:
    user: dict[str, Any] = {
        "uid": user_id,
        "name": user_id,
        "type_id": 4 if kind == "service_account" else 1,
        "org": {"uid": organization_id},
    }
    if "@" in user_id:
        user["email_addr"] = user_id
    return user


def _endpoint(event: Fields) -> dict[str, str]:
    return {"ip": event["address"]} if event["address"] else {"name": "unknown"}


def _api(event: Fields) -> dict[str, Any]:
    service, _, operation = event["action"].partition("/")
    api: dict[str, Any] = {"operation": operation, "service": {"name": service}}
    if event["request_id"]:
        api["request"] = {"uid": event["request_id"]}
    if event["outcome"] != "OK":
        api["response"] = {"error": event["outcome"], "message": event["reason"]}
    return api


def _subject(class_uid: int, event: Fields, given: Fields) -> dict[str, Any]:
    """Attributes of the class: whom or what an event is about."""
    if class_uid in _SUBJECTS:
        return _SUBJECTS[class_uid](event, given)
    return {"resources": [{"uid": event["resource"]}]} if event["resource"] else {}


def _of_user(event: Fields, given: Fields) -> dict[str, Any]:
    user_id, kind = given.get("user_id") or event["resource"], str(given.get("kind", ""))
    told: dict[str, Any] = {"user": _user(user_id, event["organization_id"], kind)}
    if "role_id" in given:
        told["iam_roles"] = [{"uid": given["role_id"]}]
    elif "role" in given:
        told["privileges"] = [given["role"]]
    return told


def _of_group(event: Fields, given: Fields) -> dict[str, Any]:
    group = {"uid": given.get("group_id") or given.get("id") or event["resource"]}
    if "name" in given:
        group["name"] = given["name"]
    if given.get("user_id"):
        return {"group": group, "user": _user(given["user_id"], event["organization_id"])}
    # A change of the group itself gives nobody anything.
    return {"group": group, "privileges": [given["role_id"]] if "role_id" in given else []}


def _of_role(event: Fields, given: Fields) -> dict[str, Any]:
    role = {"uid": event["resource"]}
    if "name" in given:
        role["name"] = given["name"]
    return {"iam_role": role, "privileges": given.get("permissions", [])}


def _of_authentication(event: Fields, _: Fields) -> dict[str, Any]:
    user = _user(event["user_id"] or "unknown", event["organization_id"])
    return {"user": user, "service": {"name": "Windlass"}, "is_remote": True}


def _of_session(event: Fields, _: Fields) -> dict[str, Any]:
    user = _user(event["user_id"], event["organization_id"])
    return {"user": user, "privileges": [event["resource"]]}


_SUBJECTS = {
    _AUTHENTICATION: _of_authentication,
    _USER: _of_user,
    _GROUP: _of_group,
    _ROLE: _of_role,
    _SESSION: _of_session,
}


def _read(text: str) -> dict[str, Any]:
    found = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}
