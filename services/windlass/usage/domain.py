"""Domain of usage: records, buckets of time, and pages of them; pure."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, field

from windlass.bounds import LATEST
from windlass.core.errors import InvalidArgument
from windlass.core.rpc.auth import Principal
from windlass.policy import ALL_PROJECTS

# Seconds, default and greatest number of buckets on a page, as OpenAI has them.
WIDTHS: dict[str, tuple[int, int, int]] = {
    "minute": (60, 60, 1440),
    "hour": (3600, 24, 168),
    "day": (86400, 7, 31),
}
GROUPS = ("project_id", "key_id", "user_id", "model", "kind")


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """Usage of one request, or of one attempt of a job."""

    id: str
    at_ms: int
    organization_id: str
    project_id: str
    user_id: str
    key_id: str
    model: str
    kind: int
    input_tokens: int
    output_tokens: int
    duration_ms: int
    time_to_first_token_ms: int
    status: int
    input_cached_tokens: int = 0
    output_reasoning_tokens: int = 0
    estimated: bool = False
    device_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class Query:
    """Sums over buckets of `width` seconds from `start`, `count` of them, before `end`."""

    organization_id: str
    start: int
    end: int
    width: int
    count: int
    group_by: tuple[str, ...] = ()
    # Column to the values of which a record must have one.
    filters: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def page_end(self) -> int:
        """The time at which this page ends."""
        return min(self.end, self.start + self.width * self.count)

    def buckets(self) -> list[tuple[int, int]]:
        """Start and end of every bucket of the page, Unix seconds in UTC."""
        return [(at, at + self.width) for at in range(self.start, self.page_end, self.width)]

    @property
    def next_page(self) -> str:
        """The token of the following page; empty on the last."""
        if self.page_end >= self.end:
            return ""
        return base64.urlsafe_b64encode(b"%d" % self.page_end).decode().rstrip("=")


def make_query(
    principal: Principal,
    *,
    start_at: int,
    end_at: int,
    now: int,
    bucket_width: str = "",
    group_by: Sequence[str] = (),
    filters: dict[str, Sequence[str]] | None = None,
    limit: int = 0,
    page: str = "",
) -> Query:
    """A query within what the principal may see; raises InvalidArgument.

    A caller without all_projects.read sees its project alone, another its organization. Sums are
    of one kind: what a training learned from is no input of a request, nor its attempt a request.
    """
    if bucket_width and bucket_width not in WIDTHS:
        raise InvalidArgument(
            f"bucket_width must be one of {', '.join(WIDTHS)}.", param="bucket_width"
        )
    width, default, most = WIDTHS[bucket_width or "day"]
    if unknown := set(group_by) - set(GROUPS):
        raise InvalidArgument(
            f"group_by cannot be {min(unknown)!r}; it must be of {', '.join(GROUPS)}.",
            param="group_by",
        )
    if limit and not 1 <= limit <= most:
        raise InvalidArgument(f"limit must be between 1 and {most}.", param="limit")
    end = end_at or now + 1
    if not 0 < start_at < end <= LATEST:
        raise InvalidArgument(
            "start_time must be Unix seconds before end_time.", param="start_time"
        )
    start = _page_start(page) if page else start_at
    wanted = {name: tuple(values) for name, values in (filters or {}).items() if values}
    if not principal.may(ALL_PROJECTS):
        own = principal.require_project()
        asked = wanted.get("project_id", (own,))
        wanted["project_id"] = (own,) if own in asked else ("",)
    return Query(
        organization_id=principal.organization_id,
        start=start - start % width,
        end=end,
        width=width,
        count=limit or default,
        group_by=tuple(dict.fromkeys((*group_by, "kind"))),
        filters=wanted,
    )


def _page_start(page: str) -> int:
    try:
        start = int(base64.urlsafe_b64decode(page + "=" * (-len(page) % 4)))
    except (ValueError, binascii.Error):
        start = -1
    if not 0 < start <= LATEST:
        raise InvalidArgument("page must be the next_page of an earlier answer.", param="page")
    return start
