"""Quotas of queues and lending; the worked examples are from Kueue's documentation."""

from hypothesis import given
from hypothesis import strategies as st

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.clusters.domain.borrowing import worked_out

GPU = "nvidia.com/gpu"


def amount(nominal: int, used: int = 0, **limits: int) -> pb.ResourceQuota:
    return pb.ResourceQuota(flavor="f", resource=GPU, nominal=nominal, used=used, **limits)


def queue(
    name: str, nominal: int, used: int = 0, *, cohort: str = "", **limits: int
) -> pb.ClusterQueue:
    return pb.ClusterQueue(name=name, cohort=cohort, quotas=[amount(nominal, used, **limits)])


def figures(
    *queues: pb.ClusterQueue, cohorts: tuple[pb.Cohort, ...] = ()
) -> dict[str, tuple[int, int, int, int]]:
    """(attainable, available, borrowed, lent) of each."""
    return {
        one.name: (quota.attainable, quota.available, quota.borrowed, quota.lent)
        for one in worked_out(queues, cohorts)
        for quota in one.quotas
    }


def test_a_queue_by_itself_has_its_own() -> None:
    assert figures(queue("a", 8, 3)) == {"a": (8, 5, 0, 0)}
    assert figures(queue("a", 8, 11)) == {"a": (8, 0, 3, 0)}


def test_a_cohort_shares_what_is_idle() -> None:
    found = figures(queue("a", 9, 4, cohort="c"), queue("b", 12, 15, cohort="c"))
    assert found == {"a": (21, 2, 0, 3), "b": (21, 2, 3, 0)}


def test_a_borrowing_limit_bounds_the_borrower() -> None:
    found = figures(queue("a", 9, cohort="c", borrowing_limit=1), queue("b", 12, cohort="c"))
    assert [one[:2] for one in found.values()] == [(10, 10), (21, 21)]


def test_a_lending_limit_keeps_the_rest() -> None:
    found = figures(queue("a", 9, cohort="c"), queue("b", 12, cohort="c", lending_limit=1))
    assert [one[:2] for one in found.values()] == [(10, 10), (21, 21)]
    full = figures(queue("a", 9, 10, cohort="c"), queue("b", 12, cohort="c", lending_limit=1))
    assert full == {"a": (10, 0, 1, 0), "b": (21, 11, 0, 1)}


def test_cohorts_nest_and_bring_in_their_own() -> None:
    cohorts = (
        pb.Cohort(name="left", parent="top", quotas=[amount(0, borrowing_limit=2)]),
        pb.Cohort(name="right", parent="top"),
        pb.Cohort(name="top", quotas=[amount(5)]),
    )
    found = figures(queue("a", 4, cohort="left"), queue("b", 8, cohort="right"), cohorts=cohorts)
    assert [one[:2] for one in found.values()] == [(6, 6), (17, 17)]


def test_a_cohort_below_itself_harms_nobody() -> None:
    cohorts = (pb.Cohort(name="x", parent="y"), pb.Cohort(name="y", parent="x"))
    assert figures(queue("a", 4, cohort="x"), queue("b", 4, cohort="y"), cohorts=cohorts)
    own = (pb.Cohort(name="x", parent="x"),)
    assert figures(queue("a", 4, cohort="x"), cohorts=own) == {"a": (4, 4, 0, 0)}


def test_flavors_and_resources_are_apart() -> None:
    mixed = queue("a", 4, cohort="c")
    mixed.quotas.add(flavor="g", resource=GPU, nominal=2)
    mixed.quotas.add(flavor="f", resource="cpu", nominal=1000)
    (found, _) = worked_out([mixed, queue("b", 1, cohort="c")], [])
    assert [quota.attainable for quota in found.quotas] == [5, 2, 1000]


limits = st.none() | st.integers(0, 20)


@st.composite
def pools(draw: st.DrawFn) -> list[pb.ClusterQueue]:
    found = []
    for number in range(draw(st.integers(1, 5))):
        nominal = draw(st.integers(0, 20))
        given = {"borrowing_limit": draw(limits), "lending_limit": draw(limits)}
        named = {name: value for name, value in given.items() if value is not None}
        cohort = draw(st.sampled_from(["", "c", "d"]))
        used = draw(st.integers(0, 30))
        found.append(queue(f"q{number}", nominal, used, cohort=cohort, **named))
    return found


@given(pools())
def test_numbers_agree(queues: list[pb.ClusterQueue]) -> None:
    found = [(one, one.quotas[0]) for one in worked_out(queues, [])]
    for one, quota in found:
        assert 0 <= quota.available <= quota.attainable
        assert quota.borrowed == max(0, quota.used - quota.nominal)
        assert quota.lent <= max(0, quota.nominal - quota.used)
        if quota.HasField("lending_limit"):
            assert quota.lent <= quota.lending_limit
        if quota.HasField("borrowing_limit") and one.cohort:
            assert quota.attainable <= quota.nominal + quota.borrowing_limit
    for cohort in ("c", "d"):
        members = [quota for one, quota in found if one.cohort == cohort]
        borrowed = sum(quota.borrowed for quota in members)
        lent = sum(quota.lent for quota in members)
        assert lent <= borrowed
        within = sum(quota.used for quota in members) <= sum(quota.nominal for quota in members)
        free = not any(quota.HasField("lending_limit") for quota in members)
        assert lent == borrowed or not (within and free)


@given(pools(), st.integers(1, 10))
def test_what_is_available_may_be_taken(queues: list[pb.ClusterQueue], asked: int) -> None:
    """Taking no more than that leaves no less than nothing, and takes from no pool twice."""
    (first, *_) = worked_out(queues, [])
    taken = min(asked, first.quotas[0].available)
    queues[0].quotas[0].used += taken
    (after, *_) = worked_out(queues, [])
    assert after.quotas[0].available == first.quotas[0].available - taken
