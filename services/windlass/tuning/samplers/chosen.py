"""The sampler of each base model: the engine that the operator names, else the trainer."""

import asyncio
from collections.abc import Mapping

from windlass.tuning.samplers.engine_of_run import EngineOfRunSampler
from windlass.tuning.samplers.engine_sampler import EngineSampler
from windlass.tuning_api.trainers.port import Trainer, TrainerLost
from windlass.tuning_api.trainers.records import OperationFailed, SampleRequest, Samples


class ChosenSampler:
    """Samples where each base model is sampled."""

    def __init__(
        self,
        trainer: Trainer,
        addresses: Mapping[str, str],
        places: int,
        engine_of_run: EngineOfRunSampler | None = None,
    ):
        """`addresses` are those of engines by the names of base models; `places` for adapters.

        `engine_of_run` samples engines of runs; None where nobody says where the gateway is.
        """
        self._trainer = trainer
        self._engine_of_run = engine_of_run
        self._engines = {
            name: EngineSampler(name, address, places) for name, address in addresses.items()
        }

    async def sample(self, request: SampleRequest) -> Samples | OperationFailed:
        """Continues a prompt with weights that do not move. Raises TrainerLost."""
        # What runs of all parameters saved is a model of its own, which no engine has.
        engine = None if request.session_id else self._engines.get(request.base_model)
        return await (self._trainer if engine is None else engine).sample(request)

    async def sample_engine(
        self, organization_id: str, request: SampleRequest
    ) -> Samples | OperationFailed:
        """Continues a prompt with the engine of a run. Raises TrainerLost, InvalidArgument."""
        if self._engine_of_run is None:
            raise TrainerLost("this server does not know the gateway")
        return await self._engine_of_run.sample(organization_id, request)

    async def close(self) -> None:
        """Releases the connections."""
        await asyncio.gather(*(engine.close() for engine in self._engines.values()))
