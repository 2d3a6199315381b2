"""Builds the gateway."""

from windlass.api.gateway.v1 import gateway_pb2_grpc
from windlass.api.inference.v1 import inference_pb2_grpc
from windlass.api.models.v1 import models_pb2_grpc
from windlass.api.rbac.v1 import rbac_pb2_grpc
from windlass.api.usage.v1 import usage_pb2_grpc
from windlass.api.users.v1 import users_pb2_grpc
from windlass.core.app import App
from windlass.core.objects import FilesystemStore, ObjectRoutes
from windlass.gateway.app import FrontDoor
from windlass.gateway.auth import Authenticator
from windlass.gateway.inference.asking import Asking
from windlass.gateway.inference.engines import Engines
from windlass.gateway.inference.handler import Inference
from windlass.gateway.inference.routes import RouteTable
from windlass.gateway.inference.scripts import Scripts
from windlass.gateway.inference.waiting import ModelFinder
from windlass.gateway.limits import Limiter
from windlass.gateway.openai.uploading import FileUploads
from windlass.gateway.rest import make_rest
from windlass.gateway.server import HttpServer
from windlass.gateway.service import GatewayInternalServicer
from windlass.gateway.shipping import Shipper
from windlass.gateway.spool import Spool

# Of one question to a model that grades, its loading included.
ASKING_SECONDS = 120.0


async def build(app: App) -> None:
    """Constructs the front door and what keeps its snapshots fresh."""
    settings, stub = app.settings, app.clients.stub
    authenticator = Authenticator(
        stub(rbac_pb2_grpc.RbacInternalServiceStub), stub(users_pb2_grpc.UsersInternalServiceStub)
    )
    routes = RouteTable(stub(inference_pb2_grpc.InferenceInternalServiceStub))
    models = stub(models_pb2_grpc.ModelsServiceStub)
    spool, engines = Spool(settings.data_dir / "spool" / "usage"), Engines()
    inference = Inference(
        ModelFinder(
            routes,
            models,
            sign=app.tokens.sign_principal,
            hold_seconds=settings.inference.hold_seconds,
        ),
        engines,
        limiter=Limiter(settings.limits),
        spool=spool,
        max_body_bytes=settings.http.max_body_bytes,
    )
    asking = Asking(inference, seconds=ASKING_SECONDS)
    scripts = Scripts(enabled=settings.graders.python)
    app.on_stop(scripts.close)
    app.serve(
        GatewayInternalServicer(asking, scripts, routes),
        gateway_pb2_grpc.add_GatewayInternalServiceServicer_to_server,
    )
    door = FrontDoor(
        authenticator=authenticator,
        tokens=app.tokens,
        inference=inference,
        routes=routes,
        uploads=FileUploads(app),
        objects=ObjectRoutes(app.objects) if isinstance(app.objects, FilesystemStore) else None,
        rest=make_rest(app, asking, scripts),
    )
    server = HttpServer(door, settings.http)
    server.announce(settings.data_dir / "address", settings.public_url)
    shipper = Shipper(spool, stub(usage_pb2_grpc.UsageInternalServiceStub))
    app.on_stop(engines.close)
    for name, run in {
        "usage": shipper.run,
        "keys": authenticator.watch,
        "routes": routes.watch,
        "warmth": routes.keep_warm,
        "http": server.run,
    }.items():
        app.background(f"gateway.{name}", run)
