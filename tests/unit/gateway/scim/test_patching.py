"""PATCH bodies of groups as changes, whatever their order and form."""

from typing import Any

import pytest
from pydantic import ValidationError

from windlass.gateway.scim.errors import ScimError
from windlass.gateway.scim.patching import MAX_OPERATIONS, PATH_LENGTH, expanded, patched

OF_A_PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"


def body(*operations: Any) -> dict[str, Any]:
    return {"schemas": [OF_A_PATCH], "Operations": list(operations)}


def people(op: str, *ids: str) -> dict[str, Any]:
    return {"op": op, "path": "members", "value": [{"value": one} for one in ids]}


def test_paths_among_names_become_operations() -> None:
    value = {'emails[type eq "work"].value': "a@x", "displayName": "A"}
    assert expanded(body({"op": "Replace", "value": value}))["Operations"] == [
        {"op": "Replace", "value": {"displayName": "A"}},
        {"op": "Replace", "path": 'emails[type eq "work"].value', "value": "a@x"},
    ]
    as_it_is = body({"op": "replace", "path": "name", "value": {"x[": 1}}, "no operation")
    assert expanded(as_it_is) == as_it_is
    with pytest.raises(ScimError, match="at most"):
        expanded(body(*[{"op": "add"}] * (MAX_OPERATIONS + 1)))
    many = {f'emails[type eq "{number}"].value': "a@x" for number in range(MAX_OPERATIONS + 1)}
    with pytest.raises(ScimError, match="at most"):
        expanded(body({"op": "add", "value": many}))
    with pytest.raises(ScimError, match="path"):
        expanded(body({"op": "add", "value": {"emails[" + "(" * PATH_LENGTH: 1}}))


@pytest.mark.parametrize(
    ("operations", "replaces", "add", "remove"),
    [
        ([people("add", "a"), people("remove", "a")], False, set(), {"a"}),
        ([people("remove", "a"), people("add", "a")], False, {"a"}, set()),
        ([people("add", "a"), people("replace", "b"), people("add", "c")], True, {"b", "c"}, set()),
        ([people("replace", "a", "b"), people("remove", "b")], True, {"a"}, set()),
        ([{"op": "remove", "path": "members"}], True, set(), set()),
        ([{"op": "Add", "value": {"Members": [{"value": "a"}], "id": "x"}}], False, {"a"}, set()),
        ([people("add")], False, set(), set()),
    ],
)
def test_members_are_added_and_removed_in_order(
    operations: list[Any], replaces: bool, add: set[str], remove: set[str]
) -> None:
    edit = patched(body(*operations))
    assert (edit.replaces, edit.add, edit.remove) == (replaces, add, remove)


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": 'members[display eq "a"]'},
        {"op": "remove", "path": 'members[value co "a"]'},
        {"op": "replace", "path": 'members[value eq "a"].type', "value": "User"},
        {"op": "remove", "path": "displayName"},
        {"op": "replace", "path": "members", "value": [{"display": "a"}]},
        {"op": "replace", "value": "x"},
    ],
)
def test_what_means_nothing_is_refused(operation: Any) -> None:
    # By scim2-models, or by us.
    with pytest.raises((ScimError, ValidationError)):
        patched(body(operation))
