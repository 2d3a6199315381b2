"""Users and groups as this service describes them, which is what it keeps of them."""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from scim2_models import (
    URN,
    CaseExact,
    ComplexAttribute,
    Mutability,
    PatchOp,
    Reference,
    Required,
    Resource,
    ScimPolicy,
    SearchRequest,
    Uniqueness,
)

if TYPE_CHECKING:
    # The name of a resource type, of which the class is ours.
    from scim2_models import User as _User

    User = _User[Any]

# Attributes that it does not keep are left out; and what Entra sends, which RFC 7644 has not.
POLICY = ScimPolicy(
    unknown=ScimPolicy.Unknown.ignore,
    remove_value_as_filter=ScimPolicy.RemoveValue.apply,
    unmatched_path_filter=ScimPolicy.UnmatchedPathFilter.create,
)


class UserName(ComplexAttribute):
    """Parts of a person's name."""

    formatted: str | None = None
    family_name: str | None = None
    given_name: str | None = None


class UserEmail(ComplexAttribute):
    """An address of a person."""

    value: str | None = None
    type: str | None = None
    primary: bool | None = None


class ScimUser(Resource[Any]):
    """A person."""

    __schema__ = URN("urn:ietf:params:scim:schemas:core:2.0:User")

    user_name: Annotated[str | None, Uniqueness.server, Required.true] = None
    name: UserName | None = None
    display_name: str | None = None
    emails: list[UserEmail] | None = None
    active: bool | None = None


class ScimGroupMember(ComplexAttribute):
    """A person in a group."""

    value: Annotated[str | None, Mutability.immutable, CaseExact.true] = None
    ref: Annotated[Reference["User"] | None, Mutability.immutable] = Field(
        None, serialization_alias="$ref", validation_alias="$ref"
    )
    type: Annotated[str | None, Mutability.immutable] = Field(None, examples=["User"])


class ScimGroup(Resource[Any]):
    """A group."""

    __schema__ = URN("urn:ietf:params:scim:schemas:core:2.0:Group")

    display_name: Annotated[str | None, Uniqueness.server, Required.true] = None
    members: list[ScimGroupMember] | None = None


UserPatch = PatchOp[ScimUser]
GroupPatch = PatchOp[ScimGroup]
UserSearch = SearchRequest[ScimUser]
GroupSearch = SearchRequest[ScimGroup]
AnySearch = SearchRequest[ScimUser | ScimGroup]
