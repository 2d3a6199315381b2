"""Gains and losses of people and keys between two moments; pure."""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from windlass.policy import narrowed, permissions_of
from windlass.users.domain import ApiKey
from windlass.users.standing import Standing, Worth, people_behind, worth_of

# Of a person in an answer: places where the change has its own effect, and ways to have the role.
MOST_PLACES = 8
MOST_SOURCES = 8


@dataclass(frozen=True, slots=True)
class Grant:
    """A role of the tenant's own that a person has."""

    # Empty: they themselves were given it.
    group_id: str
    project_id: str
    role_id: str
    ends_at: int
    permissions: frozenset[str]


@dataclass(frozen=True, slots=True)
class PowerSnapshot:
    """The roles of some people at a moment, in one organization."""

    organization_id: str
    standings: Mapping[str, Standing]
    grants: Mapping[str, Sequence[Grant]]

    def given(self, person: str, project_id: str) -> frozenset[str]:
        """Permissions of a person in a project, or in all of the organization, by such roles."""
        here = ("", project_id)
        found = (one.permissions for one in self.grants[person] if one.project_id in here)
        return frozenset().union(*found)

    def held(self, person: str, project_id: str) -> set[str]:
        """The roles of a person's memberships that count in a place."""
        return self.standings[person].roles((self.organization_id, project_id))

    def power(self, person: str, project_id: str) -> frozenset[str]:
        """All permissions of a person in a place."""
        return permissions_of(self.held(person, project_id)) | self.given(person, project_id)

    def worth(self, key: ApiKey) -> Worth | None:
        """The worth of a key of one of these people."""
        people = people_behind(key)
        held = {person: self.held(person, key.project_id) for person in people}
        given = {person: self.given(person, key.project_id) for person in people}
        return worth_of(key, held, given)

    def places(self, person: str) -> set[str]:
        """Projects of the organization where a person has something of their own."""
        own = {at[1] for at in self.standings[person].held if at[0] == self.organization_id}
        return (own | {one.project_id for one in self.grants[person]}) - {""}


@dataclass(frozen=True, slots=True)
class Difference:
    """Permissions that are had then and not now, and those that are had now and not then."""

    gains: frozenset[str]
    losses: frozenset[str]

    @classmethod
    def between(cls, now: frozenset[str], then: frozenset[str]) -> "Difference":
        """The difference that becomes of some permissions."""
        return cls(then - now, now - then)

    def __bool__(self) -> bool:
        return bool(self.gains or self.losses)


@dataclass(frozen=True, slots=True)
class RoleEffect:
    """Gains and losses of a person by a change."""

    user_id: str
    # The ways by which they have the role: as it will be, or was if they will not have it.
    by: Sequence[Grant]
    # By project; with an empty one, in all of the organization but the projects that are named.
    places: Sequence[tuple[str, Difference]]


@dataclass(frozen=True, slots=True)
class KeyEffect:
    """Gains and losses of a key by a change, within its scopes."""

    key: ApiKey
    difference: Difference
    # Nothing is left that it may do.
    ends: bool


@dataclass(frozen=True, slots=True)
class Preview:
    """A page of those who have a role, and of the keys that rest on them."""

    holders: Sequence[RoleEffect]
    has_more: bool
    keys: Sequence[KeyEffect]
    has_more_keys: bool


def effect_on(
    person: str, role_id: str, within: AbstractSet[str], now: PowerSnapshot, then: PowerSnapshot
) -> RoleEffect:
    """Gains and losses of a person who has a role now or then `within` the places of a change.

    Of other places, where they may have it too, who asks may know nothing.
    """

    def by(at: PowerSnapshot) -> list[Grant]:
        grants = at.grants[person]
        return [one for one in grants if one.role_id == role_id and one.project_id in within]

    def in_place(project_id: str) -> Difference:
        return Difference.between(now.power(person, project_id), then.power(person, project_id))

    changes = {*now.grants[person]} ^ {*then.grants[person]}
    changed = {grant.project_id for grant in changes}
    found: list[tuple[str, Difference]] = []
    everywhere = in_place("")
    if "" in changed:
        # Where they have roles of their own, another role may give what this one did.
        apart = {place for place in now.places(person) if in_place(place) != everywhere}
        changed |= apart
        if everywhere or apart:
            found.append(("", everywhere))
    for place in sorted(changed - {""}):
        difference = in_place(place)
        if difference or ("" in changed and everywhere):
            found.append((place, difference))
    return RoleEffect(person, (by(then) or by(now))[:MOST_SOURCES], found[:MOST_PLACES])


def effects_on_keys(
    keys: Collection[ApiKey], now: PowerSnapshot, then: PowerSnapshot
) -> list[KeyEffect]:
    """The keys that gain or lose, in their order."""
    found = []
    for key in keys:
        before, after = now.worth(key), then.worth(key)
        difference = Difference.between(_within(key, before), _within(key, after))
        if difference:
            found.append(KeyEffect(key, difference, after is None))
    return found


def _within(key: ApiKey, worth: Worth | None) -> frozenset[str]:
    return narrowed(worth.permissions, key.scopes) if worth else frozenset()
