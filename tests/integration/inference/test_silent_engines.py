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
from windlass_agent.executors.process.engines import engine_run, readiness

pytestmark = pytest.mark.torch


async def test_an_engine_that_hangs_is_out_of_the_routes_and_started_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One probe takes longer, so that an engine that is merely slow here is not taken for it.
    monkeypatch.setattr(readiness, "UNANSWERED_SECONDS", 3.0)
    monkeypatch.setattr(readiness, "PROBE_EVERY_SECONDS", 0.1)
    # The time that it is told to be out of the routes.
    monkeypatch.setattr(engine_run, "RESTART_SECONDS", 0.5)
    with reachable_folder() as folder, model_store(tmp_path) as store:
        async with machine(folder) as host:
            await host.driver.apply(workload(store, "mv-a"))
            served = await host.reaches(pb.PHASE_RUNNING, loaded=1)
            before = await say(served, "ft:mv-a")
            (process,) = host.processes()
            process.send_signal(signal.SIGSTOP)
            asked = asyncio.create_task(say(served, "ft:mv-a"))
            left = await until(lambda: s if (s := host.status()) and not s.endpoint else None)
            assert left.phase == pb.PHASE_STARTING
            assert not left.adapters, "no gateway sends anything there"
            told = await until(lambda: s if (s := host.status()) and s.message else None)
            assert (told.reason, told.message) == ("Restarting", "The engine stopped answering.")
            # Who waited for its answer hears that there will be none.
            with pytest.raises(openai.APIConnectionError):
                await asked
            status = await host.reaches(pb.PHASE_RUNNING, loaded=1)
            assert await say(status, "ft:mv-a") == before
            assert process.pid not in [one.pid for one in host.processes()]
            assert not process.is_running()
