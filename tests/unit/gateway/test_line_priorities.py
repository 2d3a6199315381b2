"""Whose requests go first at busy engines by an operator's word, and that all others come too."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.gateway.test_lines import Waiting, endpoint, tenant, waiters

from windlass.core.config import LimitsSection
from windlass.gateway.inference.engines import Tenant
from windlass.gateway.inference.engines.lines import AGED_SECONDS, Line, Waiter
from windlass.gateway.inference.engines.shares import PriorityClasses


def test_a_projects_own_number_comes_before_its_organizations() -> None:
    classes = PriorityClasses({"org": 1, "p": -2, "q": 3})
    assert [classes.of(tenant(name)) for name in ("q", "other", "p")] == [0, 2, 5]
    assert classes.of(tenant("else.where")) == 3
    assert PriorityClasses().of(tenant("p")) == 0
    assert PriorityClasses({"p": -4}).of(tenant("q")) == 0, "what nobody has is no class"


async def test_a_larger_priority_goes_first_whatever_it_has_open() -> None:
    world = Waiting(endpoint("e", 3), priorities={"first": 1, "last": -1})
    held = world.take("first")
    world.take("first")
    world.take("first")
    for project in ("last", "p", "first", "q", "first"):
        await world.ask(project)
    assert await world.turns(held, 5) == ["first", "first", "p", "q", "last"]


async def test_within_a_priority_the_smallest_share_goes_first() -> None:
    world = Waiting(endpoint("e", 2), priorities={"org": 2})
    held = world.take("p")
    world.take("p")
    for project in ("other.x", "p", "q"):
        await world.ask(project)
    assert await world.turns(held, 3) == ["q", "p", "other.x"]


async def test_what_may_wait_does_so_whatever_its_priority() -> None:
    world = Waiting(endpoint("e"), priorities={"first": 1, "last": -1})
    held = world.take("p")
    await world.ask("first", background=True)
    await world.ask("last", background=True)
    await world.ask("last")
    assert await world.turns(held, 3) == ["last", "first", "last"]


async def test_what_has_waited_long_shares_with_the_largest_priority() -> None:
    world = Waiting(endpoint("e", 2), priorities={"first": 1})
    held = world.take("first")
    world.take("first")
    for project in ("p", "first", "q"):
        await world.ask(project)
    for waiter in waiters(world):
        if waiter.tenant.project_id == "p":
            waiter.since -= AGED_SECONDS
    # It has the smaller share of the two; the third has not waited for long.
    assert await world.turns(held, 3) == ["p", "first", "q"]


@given(
    st.dictionaries(st.sampled_from("abcde"), st.integers(-10, 10)),
    st.lists(st.tuples(st.sampled_from("abcde"), st.floats(0, 100)), min_size=1, max_size=30),
)
async def test_nobody_waits_for_ever(
    priorities: dict[str, int], asked: list[tuple[str, float]]
) -> None:
    """Of those that have waited for long, the project with the least open has the next turn."""
    line, classes, now = Line("mv"), PriorityClasses(priorities), 1000.0
    for project, waited in sorted(asked, key=lambda one: -one[1]):
        who = tenant(f"{project}.{project}")
        later = classes.of(who._replace(project_id=project))
        line.join(
            Waiter(line, who, "kind", background=False, since=now - waited, later=later), tuple
        )
        line.open.add(who, 1)
    first = line.first(now, {"kind"})
    assert first is not None
    heads = {waiter.tenant: waiter for waiter in reversed(list(line))}.values()
    before = [waiter.classes_before(now) for waiter in heads]
    assert first.classes_before(now) == min(before)
    aged = [one for one in heads if now - one.since >= AGED_SECONDS]
    if aged:
        assert first.classes_before(now) == 0
        share = line.open.of
        assert share(first.tenant) <= min(share(one.tenant) for one in aged)


@pytest.mark.parametrize(
    "wrong", [{"proj_4f1cK2mQ": 11}, {"org-8sKq2LmZ": -11}, {"p": 1}, {"proj_4f1cK2mQ": "high"}]
)
def test_priorities_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="priorities"):
        LimitsSection.model_validate({"priorities": wrong})


def test_the_page_names_what_can_be_set() -> None:
    page = (Path(__file__).parents[3] / "docs/how-to/set-quotas.md").read_text()
    assert "priorities: {proj_4f1cK2mQ: 1, org-8sKq2LmZ: -1}" in page
    taken = LimitsSection.model_validate({"priorities": {"proj_4f1cK2mQ": 1, "org-8sKq2LmZ": -1}})
    assert PriorityClasses(taken.priorities).of(Tenant("org-8sKq2LmZ", "proj_x")) == 2
