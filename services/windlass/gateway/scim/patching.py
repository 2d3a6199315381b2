"""PATCH bodies as directories send them, and the changes of groups that bodies say."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from scim2_models import Context, PatchOperation, Path
from scim2_models.path import CompareOperator, Comparison, FilterNode, LogicalExpr, LogicalOperator

from windlass.bounds import MAX_GROUP_MEMBERS
from windlass.gateway.scim.errors import ScimError
from windlass.gateway.scim.requests import Json
from windlass.gateway.scim.resources import POLICY, GroupPatch, ScimGroup

MAX_OPERATIONS = 100
PATH_LENGTH = 2000
_ADD, _REMOVE = PatchOperation.Op.add, PatchOperation.Op.remove


@dataclass(slots=True)
class GroupEdit:
    """A change of a group, without its members having been read; what is None stays."""

    name: str | None = None
    external_id: str | None = None
    # Everybody who is not added leaves.
    replaces: bool = False
    add: set[str] = field(default_factory=set)
    remove: set[str] = field(default_factory=set)

    def join(self, ids: Iterable[str]) -> None:
        """Adds people."""
        self.add.update(ids)
        self.remove -= self.add

    def leave(self, ids: Iterable[str]) -> None:
        """Takes people out."""
        self.add.difference_update(ids)
        if not self.replaces:
            self.remove.update(ids)

    def set(self, ids: Iterable[str]) -> None:
        """Makes these all who are in it."""
        self.replaces, self.add, self.remove = True, set(ids), set()


def whole(body: Json) -> GroupEdit:
    """The change of a body that says everything of a group; raises ScimError."""
    fields = {name.lower(): value for name, value in body.items()}
    if fields.get("displayname") is None:
        raise ScimError(400, "displayName is missing.", "invalidValue")
    edit = GroupEdit(
        _text(fields["displayname"], "displayName"),
        _text(fields.get("externalid") or "", "externalId"),
    )
    edit.set(_ids(fields.get("members")))
    return edit


def patched(body: Json) -> GroupEdit:
    """The change of a PATCH body; raises ValidationError, SCIMException and ScimError."""
    with POLICY:
        patch = GroupPatch.model_validate(expanded(body), scim_ctx=Context.RESOURCE_PATCH_REQUEST)
    edit = GroupEdit()
    for operation in patch.operations or ():
        if operation.path is not None:
            _apply(edit, operation.op, Path[ScimGroup](operation.path), operation.value)
            continue
        if not isinstance(operation.value, dict):
            raise ScimError(400, "A value without a path is an object.", "invalidValue")
        for name, value in operation.value.items():
            # Its id and the like, which directories repeat, change nothing.
            if name.lower() in ("displayname", "externalid", "members"):
                _apply(edit, operation.op, Path[ScimGroup](name), value)
    return edit


def _apply(edit: GroupEdit, op: PatchOperation.Op, path: Path[Any], value: Any) -> None:
    binding = path.resolve()
    name = binding.field_name if binding is not None else ""
    if name == "display_name":
        if op == _REMOVE or value is None:
            raise ScimError(400, "A group keeps its displayName.", "mutability")
        edit.name = _text(value, "displayName")
    elif name == "external_id":
        edit.external_id = "" if op == _REMOVE or value is None else _text(value, "externalId")
    elif name == "members":
        _apply_members(edit, op, path, value)


def _apply_members(edit: GroupEdit, op: PatchOperation.Op, path: Path[Any], value: Any) -> None:
    if path.value_filter is not None:
        if op != _REMOVE:
            raise ScimError(400, "Members are added and removed, not changed.", "mutability")
        edit.leave(_selected(path.value_filter))
    elif op == _REMOVE and value is not None:
        edit.leave(_ids(value))
    elif op == _ADD:
        edit.join(_ids(value))
    else:
        edit.set([] if op == _REMOVE else _ids(value))


def _selected(node: FilterNode) -> list[str]:
    """The ids of `value eq "…"`, one or several joined by or."""
    if isinstance(node, LogicalExpr) and node.op == LogicalOperator.or_:
        return [found for term in node.terms for found in _selected(term)]
    is_id = isinstance(node, Comparison) and node.op == CompareOperator.eq
    if (
        not is_id
        or not isinstance(node, Comparison)
        or node.attr_path.attr.lower() != "value"
        or not isinstance(node.value, str)
    ):
        raise ScimError(400, 'Members are selected by value eq "ID".', "invalidFilter")
    return [node.value]


def _ids(value: Any) -> list[str]:
    entries = [] if value is None else value if isinstance(value, list) else [value]
    if len(entries) > MAX_GROUP_MEMBERS:
        raise ScimError(400, f"A group has at most {MAX_GROUP_MEMBERS} members.", "invalidValue")
    return [_id(entry) for entry in entries]


def _id(entry: Any) -> str:
    fields = {key.lower(): one for key, one in entry.items()} if isinstance(entry, dict) else {}
    found = fields.get("value")
    if not isinstance(found, str) or not found:
        raise ScimError(400, "members are objects whose value is a user's id.", "invalidValue")
    if str(fields.get("type") or "User").lower() != "user":
        raise ScimError(400, "Groups have users as members, no groups.", "invalidValue")
    return found


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ScimError(400, f"{name} is not a string.", "invalidValue")
    return value


def expanded(body: Json) -> Json:
    """A body whose operations without a path have no paths among the names of their values.

    Entra sends `{"emails[type eq \\"work\\"].value": …}`, which RFC 7644 does not know: each such
    pair becomes an operation of its own. Raises ScimError for too many.
    """
    name = next((name for name in body if name.lower() == "operations"), "")
    operations = body.get(name)
    if not isinstance(operations, list):
        return body
    found: list[Any] = []
    for given in operations:
        found += _split(given)
        if len(found) > MAX_OPERATIONS:
            message = f"A PATCH has at most {MAX_OPERATIONS} operations."
            raise ScimError(400, message, "invalidValue")
    for operation in found:
        path = operation.get("path") if isinstance(operation, dict) else None
        if isinstance(path, str) and len(path) > PATH_LENGTH:
            message = f"A path has at most {PATH_LENGTH} characters."
            raise ScimError(400, message, "invalidPath")
    return {**body, name: found}


def _split(operation: Any) -> list[Any]:
    if not isinstance(operation, dict):
        return [operation]
    fields = {key.lower(): value for key, value in operation.items()}
    value = fields.get("value")
    if fields.get("path") or not isinstance(value, dict):
        return [operation]
    paths = {key: one for key, one in value.items() if "[" in key}
    rest = {key: one for key, one in value.items() if "[" not in key}
    whole = [{"op": fields.get("op"), "value": rest}] if rest or not paths else []
    alone = [{"op": fields.get("op"), "path": path, "value": one} for path, one in paths.items()]
    return [*whole, *alone]
