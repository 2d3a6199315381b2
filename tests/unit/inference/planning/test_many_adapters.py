"""A base with thousands of adapters: a round costs what is wanted, not what is registered."""

from typing import Any, NoReturn

from tests.unit.inference.planning.test_adapters import NAMES, POLICY, World, world

from windlass.inference.domain import Name

ENGINES = 8
REGISTERED = [f"ft:{number:04}" for number in range(5000)]
# Here and there among them.
WANTED = REGISTERED[::25]
PLACES = ENGINES * POLICY.max_adapters
# For each wanted adapter on each engine; without walking all pairs of them.
MOST_LOOKUPS = 10 * len(WANTED) * ENGINES


class Registry(dict[str, Name]):
    """Names that are looked up one by one, which is counted, and never walked."""

    lookups = 0

    def __getitem__(self, version: str) -> Name:
        self.lookups += 1
        return super().__getitem__(version)

    def get(self, version: str, default: Any = None) -> Any:
        self.lookups += 1
        return super().get(version, default)

    def walked(self, *_: object) -> NoReturn:
        raise AssertionError("a round walks all that are registered")

    __iter__ = items = values = keys = walked


def large() -> tuple[World, Registry]:
    """Engines of a base with all the adapters, of a hundred projects."""
    adapters = {
        version: Name(version, f"proj-{number % 100}", "org-a", version, "tiny")
        for number, version in enumerate(REGISTERED)
    }
    registry, made = Registry({"tiny": NAMES["tiny"]} | adapters), world(ENGINES)
    made.names = registry
    return made, registry


def test_of_thousands_those_that_requests_wait_for_have_the_places() -> None:
    made, registry = large()
    used = dict.fromkeys(WANTED, 30.0)
    asked = dict.fromkeys(WANTED[:PLACES], 1)
    made.round(used | dict.fromkeys(asked, 0.0), asked)
    assert set.union(*made.held) == set(asked)
    assert [len(held) for held in made.held] == [POLICY.max_adapters] * ENGINES
    assert made.loads == PLACES
    assert registry.lookups <= MOST_LOOKUPS
    # What is asked for goes on, and nothing moves.
    for _ in range(5):
        registry.lookups = 0
        made.round(used | dict.fromkeys(asked, 0.0), asked)
        assert registry.lookups <= MOST_LOOKUPS
    assert made.loads == PLACES


def test_of_thousands_all_that_requests_wait_for_get_their_turn() -> None:
    made, _ = large()
    waiting = dict.fromkeys(WANTED, 1)
    for _ in range(60):
        # What has been loaded for a second has answered.
        there = set.union(*made.held)
        made.round({one: 2.0 if one in waiting else 5.0 for one in WANTED}, waiting)
        waiting = {one: 1 for one in waiting if one not in there}
    assert not waiting
    assert made.loads == len(WANTED)
