"""Builds the gateway."""

from functools import partial
from typing import Any

from starlette.middleware.cors import CORSMiddleware

from windlass.api.gateway.v1 import gateway_pb2_grpc
from windlass.api.inference.v1 import feeds_pb2_grpc, inference_pb2_grpc
from windlass.api.models.v1 import models_pb2_grpc
from windlass.api.rbac.v1 import rbac_pb2_grpc
from windlass.api.tuning.v1 import transfer_pb2_grpc
from windlass.api.usage.v1 import allowances_pb2_grpc, usage_pb2_grpc
from windlass.api.users.v1 import users_pb2_grpc, workload_identity_pb2_grpc
from windlass.core.addresses import ClientAddresses
from windlass.core.app import App
from windlass.core.config import HttpSection
from windlass.core.ids import new_id
from windlass.core.objects import ObjectRoutes
from windlass.gateway.app import GatewayApp
from windlass.gateway.authentication.active_requests import ActiveRequests
from windlass.gateway.authentication.attempts import Attempts
from windlass.gateway.authentication.authenticator import Authenticator
from windlass.gateway.authentication.bearers import BearerAdmission
from windlass.gateway.authentication.origins import KeyOrigins
from windlass.gateway.inference.engines import DirectWays, Engines
from windlass.gateway.inference.feeding import Feeding
from windlass.gateway.inference.handler import InferenceHandler
from windlass.gateway.inference.head import CacheSalts
from windlass.gateway.inference.images.fetching import ImageFetcher
from windlass.gateway.inference.images.inlining import Images
from windlass.gateway.inference.internal.chat import InternalChat
from windlass.gateway.inference.internal.completion import InternalCompletions
from windlass.gateway.inference.names import NameCache, ServedCheckpoints
from windlass.gateway.inference.routes import OpenRequests, RouteTable
from windlass.gateway.inference.scripts import PythonGraders
from windlass.gateway.inference.waiting import ModelFinder
from windlass.gateway.limits import Limiter
from windlass.gateway.listener import HttpServer
from windlass.gateway.listener.draining import RequestDrain
from windlass.gateway.openai.creation import JobCreation
from windlass.gateway.openai.token_exchange import TokenExchanges
from windlass.gateway.openai.uploading import FileUploads
from windlass.gateway.rest import make_rest
from windlass.gateway.scim.http import ScimHandler
from windlass.gateway.service import GatewayInternalServicer
from windlass.gateway.tinker.handler import TinkerHandler
from windlass.gateway.tinker.lending import Lending
from windlass.gateway.usage.shipper import UsageShipper
from windlass.gateway.usage.spool import UsageSpool
from windlass.inference_api.routes import KEPT, STEPS, WEIGHT_VERSION
from windlass.residency.geographies import ProjectGeographies
from windlass.tunnel.authority import gateways_authority
from windlass.tunnel.lanes import CarryStub, Lanes

# Of one question to a model that grades, its loading included.
ASKING_SECONDS = 120.0
# Of a completion that a service asks for.
COMPLETION_SECONDS = 1800.0


async def build(app: App) -> None:
    """Constructs the front door and what keeps its snapshots fresh."""
    settings, stub = app.settings, app.clients.stub
    addresses = ClientAddresses(settings.http.trusted_proxies)
    exchange = stub(workload_identity_pb2_grpc.TokenExchangeServiceStub)
    authenticator = Authenticator(
        stub(rbac_pb2_grpc.RbacInternalServiceStub),
        stub(users_pb2_grpc.UsersInternalServiceStub),
        grace_seconds=settings.auth.outage_grace_seconds,
        bearers=BearerAdmission(exchange, addresses),
        is_secure=settings.public_url.startswith("https://"),
    )
    routing = stub(inference_pb2_grpc.InferenceInternalServiceStub)
    routes = RouteTable(routing, idle_seconds=app.settings.inference.idle_seconds)
    geographies = ProjectGeographies(stub(users_pb2_grpc.UsersInternalServiceStub))
    names = NameCache(stub(models_pb2_grpc.ModelsInternalServiceStub), geographies)
    tunnels = Lanes(app.clients.stub_at(CarryStub, app.clients.address("sessions")).start)
    app.on_stop(tunnels.close)
    spool = UsageSpool(settings.data_dir / "spool" / "usage")
    engines = Engines(
        tunnels,
        directly=DirectWays(await gateways_authority(app.keyring)),
        weights=settings.limits.weights,
        priorities=settings.limits.priorities,
        hedge_seconds=settings.inference.hedge_seconds,
    )
    load = OpenRequests(routing, engines.lines)
    limiter = Limiter(
        settings.limits,
        stub(allowances_pb2_grpc.AllowancesInternalServiceStub),
        holder=new_id("gateway_"),
    )
    fetcher = ImageFetcher(settings.inference.media_hosts, settings.inference.media_networks)
    app.on_stop(fetcher.close)
    transfers = stub(transfer_pb2_grpc.TransferServiceStub)
    inference = InferenceHandler(
        ModelFinder(
            routes,
            names,
            load,
            hold_seconds=settings.inference.hold_seconds,
            engine=settings.inference.engine,
        ),
        engines,
        limiter=limiter,
        spool=spool,
        salts=CacheSalts(app.keyring.derive("cache salts")),
        images=Images(fetcher),
        checkpoints=ServedCheckpoints(transfers, app.tokens),
        feeding=Feeding(stub(feeds_pb2_grpc.FeedsInternalServiceStub)),
        max_body_bytes=settings.http.max_body_bytes,
    )
    chat = InternalChat(inference, seconds=ASKING_SECONDS)
    scripts = PythonGraders(enabled=settings.graders.python)
    app.on_stop(scripts.close)
    app.serve(
        GatewayInternalServicer(
            chat, scripts, routes, InternalCompletions(inference, seconds=COMPLETION_SECONDS)
        ),
        gateway_pb2_grpc.add_GatewayInternalServiceServicer_to_server,
    )
    active = ActiveRequests(authenticator)
    drain = RequestDrain(settings.http.drain_seconds)
    app.before_stop(drain.drain)
    origins = KeyOrigins(addresses, stub(users_pb2_grpc.UsersInternalServiceStub))
    attempts = Attempts(authenticator, addresses, allowance=settings.auth.wrong_keys)
    lending = Lending(transfers, attempts, origins, app.tokens)
    gateway = GatewayApp(
        authenticator=authenticator,
        attempts=attempts,
        origins=origins,
        active=active,
        exchanges=TokenExchanges(exchange, addresses, allowance=settings.auth.wrong_keys),
        tokens=app.tokens,
        inference=inference,
        drain=drain,
        uploads=FileUploads(app),
        creation=JobCreation(app),
        scim=ScimHandler(app),
        tinker=TinkerHandler(app, lending),
        objects=ObjectRoutes(app.objects),
        rest=make_rest(app, chat, scripts),
        audit=app.audit,
    )
    server = HttpServer(_with_cors(gateway, settings.http), settings.http)
    app.await_start(server.started)
    server.announce(settings.data_dir / "address", settings.public_url)
    shipper = UsageShipper(spool, stub(usage_pb2_grpc.UsageInternalServiceStub))
    app.exposition.sample("usage", shipper.measure)
    app.on_stop(engines.close)
    for name, run in {
        "usage": shipper.run,
        "limits": limiter.run,
        "keys": authenticator.watch,
        "key_uses": origins.run,
        "active_requests": active.run,
        "routes": routes.follower.run,
        "names": names.follower.run,
        "warmth": routes.keep_warm,
        "loads": load.report,
        "http": server.run,
    }.items():
        app.background(f"gateway.{name}", run)
    app.background("gateway.lines", partial(engines.follow, routes.change))
    app.background("gateway.ejections", engines.probe)
    app.background("gateway.idle_engines", partial(engines.let_go, routes.addresses))
    app.background("gateway.other_work", partial(engines.weigh, routes.loads))
    for follower in (routes.follower, names.follower):
        app.add_check(f"gateway.{follower.name}", follower.check)
    app.add_check("gateway.keys", authenticator.check)
    app.excuse(authenticator.grace.excuse)


def _with_cors(gateway: GatewayApp, settings: HttpSection) -> Any:
    """The front door, for pages of other origins too where some are configured."""
    if not settings.cors_origins:
        return gateway
    return CORSMiddleware(
        gateway,
        allow_origins=settings.cors_origins,
        allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=["*"],
        expose_headers=[
            "x-request-id",
            "retry-after",
            "x-should-retry",
            STEPS,
            WEIGHT_VERSION,
            KEPT,
        ],
    )
