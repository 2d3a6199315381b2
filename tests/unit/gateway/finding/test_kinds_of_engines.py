"""Which kind of engine a request is checked for, and which engines it may go to."""

from typing import Any

import pytest

from windlass.api.clusters.v1.clusters_pb2 import EngineCapabilities
from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.api.users.v1 import users_pb2
from windlass.core.rpc.auth import Principal
from windlass.gateway.errors import HttpError
from windlass.gateway.inference.head import BodyJudge
from windlass.gateway.inference.names import NameCache
from windlass.gateway.inference.offers import offering
from windlass.gateway.inference.routes import EngineEndpoint, OpenRequests, RouteTable
from windlass.gateway.inference.waiting import ModelFinder
from windlass.inference_api.images.parts import ImagePlace
from windlass.residency.geographies import ProjectGeographies

CALLER = Principal(organization_id="org", project_id="proj")
CHATS = "/v1/chat/completions"
TEXT = BodyJudge(CHATS, b"")
IMAGE = BodyJudge(CHATS, b"", "toy", [ImagePlace(1, 2, 30)])


class Services:
    """The inference and the models service: one adapter `v2` on the base `v1`."""

    def __init__(self) -> None:
        self.routes = RouteTable(self)  # type: ignore[arg-type]  # stands for a stub
        self.finder = ModelFinder(
            self.routes,
            NameCache(
                self,  # type: ignore[arg-type]  # stands for a stub
                ProjectGeographies(self),  # type: ignore[arg-type]  # stands for a stub
            ),
            OpenRequests(self),  # type: ignore[arg-type]  # stands for a stub
            hold_seconds=5,
            engine="default",
        )
        self.judged: list[tuple[str, bool]] = []
        self.on_want: list[pb.Route] = []
        self.geography = ""

    async def LookupProject(self, request: users_pb2.LookupProjectRequest) -> users_pb2.Project:
        return users_pb2.Project(id=request.project_id, geography=self.geography)

    async def LookupModel(self, request: models_pb2.LookupModelRequest) -> Any:
        model = models_pb2.Model(version_id=request.id)
        servable = models_pb2.ServableModel(model=model, engine_version_id="v1")
        return models_pb2.LookupModelResponse(model=servable)

    async def WantModel(self, request: pb.WantModelRequest) -> pb.WantModelResponse:
        self.publish(*self.on_want)
        return pb.WantModelResponse()

    def publish(self, *routes: pb.Route) -> None:
        self.routes._apply(pb.RoutesDelta(routes=routes))

    def judge(self, kind: str, *, runs: bool) -> None:
        self.judged.append((kind, runs))

    async def find(self, model: str) -> tuple[EngineEndpoint, ...]:
        found = await self.finder.find(CALLER, model, path="/v1/chat/completions", judge=self.judge)
        return found.endpoints


def route(version: str, engine: str, *addresses: str) -> pb.Route:
    endpoints = [pb.Endpoint(engine_id=one, address=one) for one in addresses]
    return pb.Route(version_id=version, endpoints=endpoints, engine=engine)


@pytest.mark.parametrize(
    ("known", "kind"),
    [
        ([], "default"),
        ([route("v1", "base")], "base"),
        ([route("v1", "base"), route("v2", "own")], "own"),
        ([route("v1", "base"), route("v2", "")], "base"),
        ([route("v1", ""), route("v2", "")], "default"),
        ([route("v3", "another")], "default"),
    ],
)
async def test_an_adapters_kind_is_its_own_its_bases_or_the_installations(
    known: list[pb.Route], kind: str
) -> None:
    services = Services()
    services.publish(*known)
    services.on_want = [route("v2", "final", "http://engine")]
    (found,) = await services.find("v2")
    assert found.address == "http://engine"
    assert services.judged == [(kind, False), ("final", True)]


async def test_a_running_engine_is_judged_as_such() -> None:
    services = Services()
    services.publish(route("v2", "own", "http://engine"))
    await services.find("v2")
    assert services.judged == [("own", True)]


@pytest.mark.parametrize(
    ("kind", "runs", "refused"),
    [
        ("builtin", False, True),
        ("builtin", True, False),
        ("vllm", False, True),
        ("vllm", True, True),
        ("another", True, True),
    ],
)
def test_a_body_for_an_engine_that_checks_itself_is_checked_before_a_start_alone(
    kind: str, runs: bool, refused: bool
) -> None:
    judge = BodyJudge(CHATS, b'{"model":"m","messages":[{"role":"user","content":"x"}],"x":1}')
    if not refused:
        judge(kind, runs=runs)
        return
    with pytest.raises(HttpError) as error:
        judge(kind, runs=runs)
    assert (error.value.status, error.value.code, error.value.param) == (
        400, "unknown_parameter", "x",
    )  # fmt: skip


def test_a_body_that_passed_for_one_kind_is_checked_for_another() -> None:
    messages = b'"messages":[{"role":"user","content":"x"}]'
    judge = BodyJudge(CHATS, b'{"model":"m",%b,"min_p":0.1}' % messages)
    judge("vllm", runs=False)
    judge("vllm", runs=True)
    with pytest.raises(HttpError):
        judge("another", runs=True)


def test_a_judge_knows_the_kind_that_answers() -> None:
    judge = BodyJudge(CHATS, b'{"model":"m","messages":[{"role":"user","content":"x"}]}')
    assert not judge.check.salted
    for kind, salted in (("builtin", False), ("vllm", True), ("builtin", False), ("vllm", True)):
        judge(kind, runs=True)
        assert judge.check.salted is salted


def test_only_engines_with_the_route_are_offered() -> None:
    plain = EngineEndpoint("a", "a", frozenset())
    embeds = EngineEndpoint("b", "b", frozenset({"/tokenize"}), embeddings=True)
    assert offering((plain, embeds), CHATS, TEXT) == (plain, embeds)
    assert offering((plain, embeds), "/v1/embeddings", TEXT) == (embeds,)
    assert offering((plain, embeds), "/tokenize", TEXT) == (embeds,)
    for path in ("/v1/embeddings", "/v1/score", "/tokenize"):
        with pytest.raises(HttpError) as error:
            offering((plain,), path, TEXT)
        assert error.value.status == 404
        assert error.value.message == f"The model does not support {path}."


def test_no_request_goes_unsalted_where_one_engine_salts() -> None:
    able = EngineCapabilities(cache_salt=True, embeddings=True)
    services = Services()
    services.publish(
        pb.Route(
            version_id="v1",
            endpoints=[
                pb.Endpoint(engine_id="a", address="a"),
                pb.Endpoint(engine_id="b", address="b", capabilities=able),
            ],
        )
    )
    found = services.routes.find("v1")
    assert found is not None
    assert [one.address for one in offering(found.endpoints, CHATS, TEXT)] == ["b"]


def test_images_go_to_engines_that_read_them_alone() -> None:
    blind = EngineEndpoint("a", "a", frozenset())
    sees = EngineEndpoint("b", "b", frozenset(), vision=True)
    assert offering((blind, sees), CHATS, IMAGE) == (sees,)
    assert offering((blind, sees), CHATS, TEXT) == (blind, sees)
    # Those that start tell it later.
    assert offering((), CHATS, IMAGE) == ()
    with pytest.raises(HttpError) as error:
        offering((blind,), CHATS, IMAGE)
    refused = (error.value.status, error.value.param, error.value.message)
    assert refused == (400, "messages[1].content[2]", "The model `toy` reads no images.")


@pytest.mark.parametrize("kind", ["builtin", "llamacpp", "sglang", "adopted", "adopted-vllm", "x"])
@pytest.mark.parametrize("runs", [True, False])
def test_kinds_that_read_no_images_are_asked_about_none(kind: str, runs: bool) -> None:
    with pytest.raises(HttpError, match="reads no images") as error:
        IMAGE(kind, runs=runs)
    assert error.value.param == "messages[1].content[2]"
