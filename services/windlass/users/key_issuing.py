"""Keys as callers make, see and end them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from windlass.api.users.v1 import users_pb2 as pb
from windlass.bounds import MAX_KEY_SECONDS, MAX_OVERLAP_SECONDS
from windlass.core.clock import now_seconds
from windlass.core.errors import InvalidArgument, PermissionDenied
from windlass.core.ids import new_id
from windlass.core.rpc import audited, auth
from windlass.core.rpc.auth import Principal
from windlass.policy import (
    MEMBERS,
    OWNER_ROLES,
    PLATFORM,
    PROJECT_ROLES,
    SELF,
    lesser,
    narrowed,
    permissions_of,
)
from windlass.users.domain import (
    CREDENTIAL_NAMES,
    KEY,
    SESSION,
    ApiKey,
    require_grant,
    require_role,
    require_scope,
    role_name,
    valid_title,
    valid_user,
)
from windlass.users.keys.changes import KeyChanges, NewSecret
from windlass.users.keys.listing import KeyFilter
from windlass.users.keys.restrictions import valid_models, valid_networks, valid_scopes
from windlass.users.keys.store import KeyStore, unknown_key
from windlass.users.keys.tags import valid_tags
from windlass.users.membership.store import MemberStore
from windlass.users.scope import owns_organization, project_in_scope
from windlass.users.store import TenantStore


class Issuer:
    """Makes, lists and ends keys on behalf of a principal."""

    def __init__(
        self,
        tenants: TenantStore,
        members: MemberStore,
        keys: KeyStore,
        changes: KeyChanges,
        *,
        key_prefix: str,
    ):
        self._tenants = tenants
        self._members = members
        self._keys = keys
        self._changes = changes
        self._key_prefix = key_prefix

    async def create(
        self, principal: Principal, request: pb.CreateApiKeyRequest
    ) -> tuple[ApiKey, str]:
        """A new key and its secret; at most as powerful as its maker and its owner."""
        role, project_id = await self._scope(principal, request)
        scopes = valid_scopes(request.scopes, role)
        _require_power(principal, narrowed(permissions_of((role,)), scopes) if scopes else ())
        owner = principal.user_id
        if request.user_id and request.user_id != owner:
            owner = valid_user(request.user_id)
            await self._require_owner(principal, owner, role, project_id, scopes)
        secret = auth.new_secret(self._key_prefix)
        key = ApiKey(
            id=new_id("key_"),
            name=valid_title(request.name, "name"),
            organization_id=principal.organization_id,
            project_id=project_id,
            user_id=owner,
            role=role,
            redacted=auth.redact(secret, self._key_prefix),
            created_at=now_seconds(),
            expires_at=await self._end(principal, request.expires_in),
            revoked_at=0,
            last_used_at=0,
            made_by=principal.user_id,
            parent_key_id=principal.key_id,
            scopes=scopes,
            networks=valid_networks(request.networks),
            models=valid_models(request.models),
            tags=valid_tags(request.tags),
        )
        operates = principal.may(PLATFORM)
        return await self._keys.create(key, auth.digest(secret), by_operator=operates), secret

    async def _scope(
        self, principal: Principal, request: pb.CreateApiKeyRequest
    ) -> tuple[str, str]:
        role = role_name(request.role or pb.ROLE_PROJECT_MEMBER)
        project_id = project_in_scope(principal, request.project_id)
        if role in PROJECT_ROLES and not project_id:
            project_id = principal.require_project()
        # With scopes it has no more than they say, which is within the caller's power.
        if not request.scopes:
            require_role(principal.roles, role)
        require_scope(role, project_id)
        if project_id:
            project = await self._tenants.project(principal.organization_id, project_id)
            if project.archived_at:
                raise InvalidArgument("The project is archived.", param="project_id")
        return role, project_id

    async def _require_owner(
        self,
        principal: Principal,
        owner: str,
        role: str,
        project_id: str,
        scopes: tuple[str, ...],
    ) -> None:
        """Raises unless the caller administers this member, who may be what the key will be."""
        if not principal.may(MEMBERS):
            raise PermissionDenied(
                "Only owners can make keys for other members. Leave user_id out for a key of "
                "your own.",
                param="user_id",
            )
        held = await self._members.held(principal.organization_id, project_id, owner)
        # Nobody acts in the name of a person above them.
        for one in sorted(held):
            require_role(principal.roles, one)
        if lesser(role, held, project_id=project_id) == role:
            return
        power = await self._members.power(principal.organization_id, project_id, owner)
        if not scopes or not power.issuperset(scopes):
            raise InvalidArgument(
                f"The member {owner} does not have the role {role} in this scope. Give it to the "
                "member first, or choose a lower role for the key.",
                param="user_id",
            )

    async def _end(self, principal: Principal, seconds: int) -> int:
        """Returns when a key of so many seconds ends; raises InvalidArgument beyond its parent's
        end.
        """
        if not _lifetime(seconds):
            return 0
        end = now_seconds() + seconds
        if principal.key_id:
            parent = await self._keys.by_id(principal.key_id)
            outlived = parent.kind == SESSION or not parent.expires_at
            if not outlived and end > parent.expires_at:
                raise InvalidArgument(
                    "A key must expire no later than the key that makes it: expires_in must be at "
                    f"most {parent.expires_at - end + seconds}. Leave it out for the same end.",
                    param="expires_in",
                )
        return end

    async def list(
        self,
        principal: Principal,
        request: pb.ListApiKeysRequest,
        *,
        project_id: str,
        limit: int,
    ) -> Sequence[ApiKey]:
        """The keys of a scope that the caller may see: owners see all, members their own.

        What a narrow key sees, itself and its own, may be of no project: all, unless one is asked.
        """
        kind = CREDENTIAL_NAMES.get(request.kind, KEY)
        mine = not _answers_for(principal, kind)
        family = mine and await self._is_weakened(principal)
        return await self._keys.list(
            principal.organization_id,
            KeyFilter(
                # A session is for all projects of its person.
                project_id="" if kind == SESSION else request.project_id if family else project_id,
                user_id=principal.user_id if mine else "",
                family_of=principal.key_id if family else "",
                of_organization=request.of_organization,
                is_live=request.live,
                tags=frozenset(valid_tags(request.tags)),
                owner_has_access=(
                    request.owner_has_access if request.HasField("owner_has_access") else None
                ),
                kind=kind,
            ),
            oldest_first=request.oldest_first,
            after=request.after,
            limit=limit,
        )

    async def get(self, principal: Principal, key_id: str) -> ApiKey:
        """A key that the caller may see; raises NotFound."""
        return await self._seen(principal, key_id)

    async def revoke(self, principal: Principal, key_id: str) -> ApiKey:
        """Ends a key that the caller may see and give; raises NotFound, PermissionDenied."""
        key = await self._given(principal, key_id)
        revoked = await self._keys.revoke(principal.organization_id, key.id)
        audited.change(key, revoked)
        return revoked

    async def rotate(
        self, principal: Principal, key_id: str, overlap_seconds: int
    ) -> tuple[ApiKey, str]:
        """Another secret of a key that the caller may see and give, and has the power of."""
        if not 0 <= overlap_seconds <= MAX_OVERLAP_SECONDS:
            raise InvalidArgument(
                f"overlap must be between 0 and {MAX_OVERLAP_SECONDS} seconds.", param="overlap"
            )
        key = _changeable(await self._given(principal, key_id))
        if key.id != principal.key_id:
            _require_power(principal, key.permissions)
        secret = auth.new_secret(self._key_prefix)
        new = NewSecret(auth.digest(secret), auth.redact(secret, self._key_prefix), overlap_seconds)
        rotated = await self._changes.rotate(
            principal.organization_id, key.id, new, by=principal.key_id
        )
        return rotated, secret

    async def update(self, principal: Principal, request: pb.UpdateApiKeyRequest) -> ApiKey:
        """Changes settings of a key that the caller may see and give, within its own power."""
        key = _changeable(await self._given(principal, request.key_id))
        scopes = valid_scopes(request.scopes.names, key.role)
        if request.HasField("scopes"):
            _require_power(principal, narrowed(permissions_of((key.role,)), scopes))
        seconds = _lifetime(request.expires_in) if request.HasField("expires_in") else 0

        def change(found: ApiKey) -> ApiKey:
            if request.HasField("name"):
                found = replace(found, name=valid_title(request.name, "name"))
            if request.HasField("scopes"):
                found = replace(found, scopes=scopes)
            if request.HasField("networks"):
                found = replace(found, networks=valid_networks(request.networks.names))
            if request.HasField("models"):
                found = replace(found, models=valid_models(request.models.names))
            if request.HasField("tags"):
                found = replace(found, tags=valid_tags(request.tags.values))
            if request.HasField("expires_in"):
                found = replace(found, expires_at=now_seconds() + seconds if seconds else 0)
            return found

        return await self._changes.update(
            principal.organization_id, key.id, change, by=principal.key_id
        )

    async def _given(self, principal: Principal, key_id: str) -> ApiKey:
        """A key that the caller may see and give; raises NotFound, PermissionDenied."""
        key = await self._seen(principal, key_id)
        if key.kind == SESSION and key.user_id != principal.user_id:
            # It has all roles of its person, and none of its own.
            held = await self._members.held_anywhere(principal.organization_id, key.user_id)
            for role in sorted(held):
                require_grant(principal, role)
        if not key.permissions <= principal.permissions | {SELF}:
            require_role(principal.roles, key.role)
        return key

    async def _seen(self, principal: Principal, key_id: str) -> ApiKey:
        """A key that the caller may see; raises NotFound."""
        key = await self._keys.get(principal.organization_id, key_id)
        if principal.key_id not in (key.id, key.parent_key_id):
            in_scope = owns_organization(principal) or key.project_id == principal.project_id
            answers = in_scope and _answers_for(principal, key.kind)
            is_own = in_scope or key.kind == SESSION
            if not answers and not (is_own and await self._is_own(principal, key)):
                raise unknown_key(key.id)
        return key

    async def _is_own(self, principal: Principal, key: ApiKey) -> bool:
        return key.user_id == principal.user_id and not await self._is_weakened(principal)

    async def _is_weakened(self, principal: Principal) -> bool:
        """True if an owner gave this key less than it has: it acts for itself, not for them.

        So does a key with scopes.
        """
        if not principal.permissions >= permissions_of(principal.roles):
            return True
        held = await self._members.held(
            principal.organization_id, principal.project_id, principal.user_id
        )
        return not OWNER_ROLES.isdisjoint(held)


def _answers_for(principal: Principal, kind: str) -> bool:
    """Returns True if the caller administers other people's credentials of a kind."""
    return owns_organization(principal) if kind == SESSION else principal.may(MEMBERS)


def _require_power(principal: Principal, permissions: Iterable[str]) -> None:
    """Raises PermissionDenied where a key would have what the caller's has not."""
    if missing := sorted(set(permissions) - principal.permissions - {SELF}):
        raise PermissionDenied(
            f"Your key does not have {', '.join(missing)}, so that it cannot give a key that does.",
            param="scopes",
        )


def _changeable(key: ApiKey) -> ApiKey:
    """The key; raises InvalidArgument for a session or a token, which nobody changes."""
    if key.kind != KEY:
        raise InvalidArgument(f"{key.id} is a {key.kind}: it can only be ended.", param="key_id")
    return key


def _lifetime(seconds: int) -> int:
    """A key's lifetime in seconds, 0 for one without an end; raises InvalidArgument."""
    if not 0 <= seconds <= MAX_KEY_SECONDS:
        raise InvalidArgument(
            f"expires_in must be between 1 and {MAX_KEY_SECONDS} seconds (ten years), or 0 for a "
            "key that does not expire.",
            param="expires_in",
        )
    return seconds
