"""The usage service's store and queries against a real Postgres."""

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from windlass.core.db import Database
from windlass.core.errors import InvalidArgument
from windlass.core.rpc.auth import Principal
from windlass.policy import ROLES
from windlass.usage.domain import Query, UsageRecord, make_query
from windlass.usage.store import UsageStore

DAY = 1_750_000_000 - 1_750_000_000 % 86400
OWNER = Principal("org-a", "proj-a", permissions=ROLES["organization_owner"])
MEMBER = Principal("org-a", "proj-a", permissions=ROLES["project_member"])
ONE = UsageRecord(
    "r1", DAY * 1000, "org-a", "proj-a", "ann", "key_1", "toy", 1, 10, 5, 20, 7, 200
)  # fmt: skip


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[UsageStore]:
    database = Database(database_url)
    yield UsageStore(database)
    await database.close()


def query(principal: Principal = OWNER, **options: Any) -> Query:
    asked: dict[str, Any] = {
        "start_at": DAY,
        "end_at": DAY + 86400,
        "now": int(time.time()),
        **options,
    }
    return make_query(principal, **asked)


async def sums(store: UsageStore, query: Query) -> list[tuple[object, ...]]:
    rows = [row for bucket in (await store.query(query)).values() for row in bucket]
    return sorted(tuple(row)[1:] for row in rows)


async def test_a_record_counts_once_however_often_it_comes(store: UsageStore) -> None:
    await store.append([ONE, replace(ONE, id="r2", model='o"dd\\ é')])
    await store.append([ONE])
    await store.append([])
    assert await sums(store, query()) == [(1, 20, 10, 0, 0, 0, 2, 0)]


async def test_cached_reasoning_and_estimated_tokens_have_sums_of_their_own(
    store: UsageStore,
) -> None:
    cut = replace(
        ONE, id="r2", input_cached_tokens=8, output_reasoning_tokens=3, estimated=True, status=499
    )
    await store.append([ONE, cut, replace(cut, id="r3", organization_id="org-b")])
    assert await sums(store, query()) == [(1, 20, 10, 8, 3, 0, 2, 1)]


async def test_groups_and_filters(store: UsageStore) -> None:
    await store.append(
        [ONE, replace(ONE, id="r2", model="other", key_id="key_2"), replace(ONE, id="r3", kind=4)]
    )
    assert await sums(store, query(group_by=["model"])) == [
        ("other", 1, 10, 5, 0, 0, 0, 1, 0),
        ("toy", 1, 10, 5, 0, 0, 0, 1, 0),
        ("toy", 4, 10, 5, 0, 0, 0, 1, 0),
    ]  # fmt: skip
    assert await sums(store, query(group_by=["kind", "model"], filters={"model": ["toy"]})) == [
        (1, "toy", 10, 5, 0, 0, 0, 1, 0),
        (4, "toy", 10, 5, 0, 0, 0, 1, 0),
    ]


async def test_tokens_learned_from_are_not_added_to_those_of_requests(store: UsageStore) -> None:
    await store.append([ONE, replace(ONE, id="ftjob-1/1", kind=4, input_tokens=9000)])
    assert await sums(store, query()) == [(1, 10, 5, 0, 0, 0, 1, 0), (4, 9000, 5, 0, 0, 0, 1, 0)]


async def test_a_tenant_sees_its_own(store: UsageStore) -> None:
    await store.append(
        [
            ONE,
            replace(ONE, id="r2", project_id="proj-b"),
            replace(ONE, id="r3", organization_id="org-b", project_id="proj-c"),
        ]
    )
    assert await sums(store, query(OWNER)) == [(1, 20, 10, 0, 0, 0, 2, 0)]
    assert await sums(store, query(MEMBER)) == [(1, 10, 5, 0, 0, 0, 1, 0)]
    assert await sums(store, query(MEMBER, filters={"project_id": ["proj-b"]})) == []
    assert await sums(store, query(OWNER, filters={"project_id": ["proj-c"]})) == []


async def test_buckets_are_utc_and_pages_cover_them_all(store: UsageStore) -> None:
    await store.append(
        [replace(ONE, id=f"r{hour}", at_ms=(DAY + 3600 * hour + 1) * 1000) for hour in range(24)]
    )
    seen, page = [], ""
    while True:
        asked = query(bucket_width="hour", limit=5, page=page)
        found = await store.query(asked)
        for start, end in asked.buckets():
            assert (start % 3600, end - start) == (0, 3600)
            seen += [(start - DAY) // 3600 for _ in found.get(start, ())]
        page = asked.next_page
        if not page:
            break
    assert seen == list(range(24))


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"bucket_width": "week"}, "bucket_width"),
        ({"group_by": ["secret"]}, "group_by"),
        ({"limit": 32}, "limit"),
        ({"start_at": 0}, "start_time"),
        ({"end_at": DAY}, "start_time"),
        ({"end_at": 2**62}, "start_time"),
        ({"page": "!"}, "page"),
        ({"page": "YWJj"}, "page"),
    ],
)
def test_a_bad_query_names_the_field(options: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        query(**options)
    assert caught.value.param == param
