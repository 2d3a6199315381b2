"""Choice of a cluster for one engine more, and the reason for it in words; pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from windlass.inference.places.quota_room import UNKNOWN, QueueRoom


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateCluster:
    """A cluster that may start an engine of a version."""

    cluster_id: str
    # It has as many engines as it should have.
    is_full: bool = False
    # Its share of the version's engines, and those that it has.
    weight: int = 1
    same: int = 0
    # Every project may use it.
    is_shared: bool = False
    # Millionths for an accelerator-hour.
    price_micros: int = 0
    room: QueueRoom = UNKNOWN
    has_files: bool = False
    # Engines of all versions that it has.
    engines: int = 0

    @property
    def terms(self) -> tuple[int, bool, int]:
        """Decisions of operators and tenants; clusters on equal ones stand for each other."""
        return self.weight, self.is_shared, self.price_micros


# By what one cluster is better than another, the most important first, and how that is said.
_REASONS: tuple[Callable[[CandidateCluster], str], ...] = (
    lambda _: "room for another engine",
    lambda one: one.room.words or "no wait for quota",
    lambda _: "fewest engines of the model for its weight",
    lambda _: "assigned to the project",
    lambda _: "lowest price",
    lambda _: "has the model's files",
    lambda _: "fewest engines",
    lambda _: "first of equal clusters",
)


def choose(candidates: Sequence[CandidateCluster]) -> tuple[str, str]:
    """Returns the id of the best cluster of at least one, and why it is that, in words.

    One where an engine would wait for quota comes after those on the same terms where it would
    not. So weights and prices hold, and nothing waits while an equal cluster has room.
    """
    roomy = {one.terms for one in candidates if one.room.is_there and not one.is_full}

    def order(one: CandidateCluster) -> tuple[bool | float | str, ...]:
        return (
            one.is_full,
            not one.room.is_there and one.terms in roomy,
            (one.same + 1) / one.weight,
            one.is_shared,
            one.price_micros,
            not one.has_files,
            one.engines,
            one.cluster_id,
        )

    best, *others = sorted(candidates, key=order)
    if not others:
        return best.cluster_id, "only cluster that may run it"
    pairs = zip(order(best), order(others[0]), _REASONS, strict=True)
    return best.cluster_id, next(say(best) for ours, theirs, say in pairs if ours != theirs)
