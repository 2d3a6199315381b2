"""Entry point of `vllm.endpoint_plugins`, which vLLM loads where `VLLM_PLUGINS` names it."""

import asyncio
import atexit
import logging
from typing import Any

from windlass_vllm import settings
from windlass_vllm.api.newest_version import NewestVersionFirst
from windlass_vllm.api.reported_steps import ReportedSteps
from windlass_vllm.api.requests import Bounds
from windlass_vllm.api.routes import TrainRoutes
from windlass_vllm.api.training import EngineTraining
from windlass_vllm.engine import versions
from windlass_vllm.refusal import Refused

_log = logging.getLogger("vllm.windlass_vllm")


class TrainingEndpoint:
    """The plugin as vLLM asks for it."""

    name = settings.PLUGIN
    required_tasks = ("generate",)

    def __init__(self) -> None:
        self._settings = settings.from_environment()
        self._training: EngineTraining | None = None
        self._refused = Refused("not_started", "the engine does not serve yet")
        self._task: asyncio.Task[None] | None = None

    def attach_router(self, app: Any) -> None:
        """Adds the routes; none in a version of vLLM that was not tested."""
        if versions.is_tested(versions.installed()):
            routes = TrainRoutes(lambda: self._settings.key, self._started)
            app.router.routes.extend(routes.routes())
            app.add_middleware(ReportedSteps, counts=self._counts)
            app.add_middleware(NewestVersionFirst, is_behind=self._is_behind)

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """Takes jobs from now on; an engine that cannot be trained serves all the same."""
        if not versions.is_tested(versions.installed()):
            return
        try:
            self._start(engine_client, args)
        except Refused as error:
            self._refused = error
        except OSError as error:
            self._refused = Refused("no_room", f"no folder can be made: {error}")

    def _start(self, engine_client: Any, args: Any) -> None:
        if (getattr(args, "api_server_count", 1) or 1) > 1:
            raise Refused("many_api_servers", "training needs --api-server-count 1")
        model = engine_client.vllm_config.model_config
        bounds = Bounds(vocabulary=model.get_vocab_size(), context=model.max_model_len)
        self._training = EngineTraining(engine_client, model.model, bounds, self._settings)
        atexit.register(self._training.close)
        self._task = asyncio.get_running_loop().create_task(self._training.run())
        _log.info("training is ready on this engine's own port")

    def _counts(self) -> tuple[int, int] | None:
        return self._training.counts() if self._training else None

    def _is_behind(self) -> bool:
        return self._training is not None and self._training.is_behind

    def _started(self) -> EngineTraining:
        if self._training is None:
            raise self._refused
        return self._training
