"""Where what a project has may be, how geographies are written, and what is kept of them."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.api.users.v1 import users_pb2 as pb
from windlass.core.errors import FailedPrecondition, InvalidArgument
from windlass.residency.geographies import ProjectGeographies
from windlass.residency.rule import (
    admits,
    as_residency,
    checked,
    of_residency,
    require_cluster,
    require_receiver,
    require_stores,
)

GEOGRAPHIES = st.sampled_from(["", "US", "EU", "JP"])


@given(GEOGRAPHIES, GEOGRAPHIES)
def test_a_project_of_a_geography_is_where_the_label_says_the_same(label: str, of: str) -> None:
    assert admits(label, of) == (of in ("", label))


@pytest.mark.parametrize("wrong", ["eu", "EUR", "E", "E1", "EU ", "EU\n", " ", "ÄÖ"])
def test_what_is_no_geography_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        checked(wrong)
    assert refused.value.param == "geography"


@pytest.mark.parametrize("right", ["", "US", "EU", "DE"])
def test_two_capital_letters_or_nothing_are_taken(right: str) -> None:
    assert checked(right) == right


@pytest.mark.parametrize(
    ("objects", "database", "words"),
    [
        ("", "", "object store is in no geography that its operator named (residency.objects)"),
        ("US", "EU", "object store is in US (residency.objects)"),
        ("EU", "US", "database is in US (residency.database)"),
        ("EU", "", "database is in no geography"),
    ],
)
def test_both_stores_have_to_be_there(objects: str, database: str, words: str) -> None:
    stores = {"residency.objects": objects, "residency.database": database}
    with pytest.raises(FailedPrecondition, match="in EU") as refused:
        require_stores("EU", stores)
    assert words in refused.value.message
    assert (refused.value.reason, refused.value.param) == ("geography_mismatch", "geography")
    require_stores("", stores)


def test_stores_that_are_there_are_taken() -> None:
    require_stores("EU", {"residency.objects": "EU", "residency.database": "EU"})


@pytest.mark.parametrize(("label", "words"), [("US", "is labelled US"), ("", "has no label")])
def test_a_cluster_elsewhere_is_refused(label: str, words: str) -> None:
    with pytest.raises(FailedPrecondition, match=words):
        require_cluster(label, "EU", cluster="east", param="cluster_id")
    require_cluster(label, "", cluster="east", param="cluster_id")


@pytest.mark.parametrize(("label", "words"), [("US", "stays in US"), ("", "may be anywhere")])
def test_what_another_project_may_not_receive_is_refused(label: str, words: str) -> None:
    with pytest.raises(FailedPrecondition, match=words) as refused:
        require_receiver(label, "EU")
    assert (refused.value.reason, refused.value.param) == ("geography_mismatch", "project_ids")
    require_receiver(label, "")


@pytest.mark.parametrize("geography", ["EU", "US", "DE"])
def test_a_geography_has_a_word_of_openai_s(geography: str) -> None:
    assert of_residency(as_residency(geography) or "") == geography


def test_no_geography_is_global() -> None:
    assert (of_residency("GLOBAL"), as_residency("")) == ("", None)


@pytest.mark.parametrize("word", ["JP_STORAGE", "EU", "eu_STORAGE_PROCESSING", "", "global"])
def test_words_that_promise_something_else_are_refused(word: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        of_residency(word)
    assert (refused.value.reason, refused.value.param) == ("unsupported_parameter", "residency")


class Users:
    """The users service: one project of a geography, one without, and what else it is told."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.known = {"proj_eu": "EU", "proj_any": ""}
        self.fails: grpc.StatusCode | None = None

    async def LookupProject(self, request: pb.LookupProjectRequest) -> pb.Project:
        self.asked.append(request.project_id)
        if self.fails or request.project_id not in self.known:
            raise _failure(self.fails or grpc.StatusCode.NOT_FOUND)
        return pb.Project(id=request.project_id, geography=self.known[request.project_id])

    async def ListResidencies(
        self, request: pb.ListResidenciesRequest
    ) -> pb.ListResidenciesResponse:
        if self.fails:
            raise _failure(self.fails)
        left = [one for one in sorted(self.known) if self.known[one] and one > request.after]
        page: Iterator[pb.Residency] = (
            pb.Residency(project_id=one, geography=self.known[one]) for one in left[:2]
        )
        return pb.ListResidenciesResponse(residencies=page, has_more=len(left) > 2)


def _failure(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "no")


def of(users: Any) -> ProjectGeographies:
    return ProjectGeographies(users, size=2)


async def test_a_geography_is_asked_for_once() -> None:
    users = Users()
    geographies = of(users)
    found = [await geographies.of(one) for one in ("proj_eu", "proj_any", "") * 2]
    assert found == ["EU", "", ""] * 2
    assert users.asked == ["proj_eu", "proj_any"]


async def test_what_is_not_there_is_asked_for_again() -> None:
    users = Users()
    geographies = of(users)
    assert await geographies.of("proj_new") == ""
    users.known["proj_new"] = "JP"
    assert await geographies.of("proj_new") == "JP"


async def test_where_nobody_says_it_nothing_is_presumed() -> None:
    users = Users()
    users.fails = grpc.StatusCode.UNAVAILABLE
    for asked in (of(users).of("proj_eu"), of(users).all()):
        with pytest.raises(grpc.aio.AioRpcError):
            await asked


async def test_what_was_listed_last_counts_while_the_service_is_away() -> None:
    users = Users()
    geographies = of(users)
    listed = await geographies.all()
    users.fails = grpc.StatusCode.UNAVAILABLE
    assert await geographies.all() == listed
    users.fails = grpc.StatusCode.INTERNAL
    with pytest.raises(grpc.aio.AioRpcError):
        await geographies.all()


async def test_a_service_of_the_release_before_has_no_such_projects() -> None:
    users = Users()
    users.fails = grpc.StatusCode.UNIMPLEMENTED
    assert await of(users).all() == []


async def test_all_are_listed_page_by_page() -> None:
    users = Users()
    users.known |= {f"proj_{one}": "US" for one in range(4)}
    assert [one.project_id for one in await of(users).all()] == [
        "proj_0", "proj_1", "proj_2", "proj_3", "proj_eu",
    ]  # fmt: skip
