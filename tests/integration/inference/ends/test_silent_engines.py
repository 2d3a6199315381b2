"""An engine of a machine that hangs: it lives, answers nothing, and is started anew."""

import asyncio
import signal
from pathlib import Path

import openai
import pytest
from tests.support.agents.engine_machine import machine, model_store, say, workload
from tests.support.environments.postgres import reachable_folder
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.executors.process.engines import readiness

pytestmark = pytest.mark.torch


async def test_an_engine_that_hangs_is_out_of_the_routes_and_started_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "PROBE_EVERY_SECONDS", 0.1)
    with reachable_folder() as folder, model_store(tmp_path) as store:
        async with machine(folder) as host:
            await host.driver.apply(workload(store, "mv-a"))
            served = await host.reaches(pb.PHASE_RUNNING, loaded=1)
            before = await say(served, "ft:mv-a")
            (process,) = host.processes()
            host.said.clear()
            process.send_signal(signal.SIGSTOP)
            asked = asyncio.create_task(say(served, "ft:mv-a"))
            with monkeypatch.context() as impatient:
                # Of this engine alone, so that none that is merely slow here is taken for it.
                impatient.setattr(readiness, "UNANSWERED_SECONDS", 0.0)
                await until(lambda: any(not one.endpoint for one in host.said))
            # Who waits for its answer hears that there will be none.
            with pytest.raises(openai.APIConnectionError):
                await asked
            status = await host.reaches(pb.PHASE_RUNNING, loaded=1)
            left = next(one for one in host.said if not one.endpoint)
            assert (left.phase, left.reason) == (pb.PHASE_STARTING, "Restarting")
            assert left.message == "The engine stopped answering."
            assert not left.adapters, "no gateway sends anything there"
            assert all(one.endpoint for one in host.said if one.phase == pb.PHASE_RUNNING)
            assert await say(status, "ft:mv-a") == before
            assert process.pid not in [one.pid for one in host.processes()]
            assert not process.is_running()
