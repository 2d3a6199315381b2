"""OpenAI's wire, a file per resource: parse, call the service, render.

May import the contract, the kernel, `jobs_api`, and of the gateway `inference` and the modules
beside it; never `admin`.
"""

from windlass.gateway.openai.fetches import fetches_router
from windlass.gateway.openai.files import files_router
from windlass.gateway.openai.fine_tuning import fine_tuning_router
from windlass.gateway.openai.models import models_router
from windlass.gateway.openai.permissions import permissions_router
from windlass.gateway.openai.webhooks import webhooks_router

ROUTERS = (
    files_router,
    models_router,
    fetches_router,
    fine_tuning_router,
    permissions_router,
    webhooks_router,
)
