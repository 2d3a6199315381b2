"""Two engines in pods of a real cluster, among which its endpoint picker chooses."""

from pathlib import Path

import pytest
from tests.cluster.fixtures import Clusters
from tests.cluster.stages.engines import engine_stage
from tests.cluster.stages.picker import READY, real_picker
from tests.support.agents.replica_stage import ask, connect
from tests.support.environments import postgres
from tests.support.waiting import until

from windlass_agent.executors.kubernetes.engine_settings import EngineSettings
from windlass_agent.executors.kubernetes.render.engine_pod import HEALTH_PORT
from windlass_agent.tunnel.picking.chooser import ReplicaChooser
from windlass_agent.tunnel.targets import Targets

pytestmark = [pytest.mark.torch, pytest.mark.long, pytest.mark.timeout(1500)]


async def test_both_answer_what_came_for_one(
    clusters: Clusters, postgres_url: str, schema_template: str, tmp_path: Path
) -> None:
    with (
        clusters.open("east") as cluster,
        postgres.fresh_database(postgres_url, template=schema_template) as url,
    ):
        async with engine_stage(cluster, url, tmp_path, memory="3000Mi") as stage:
            space = stage.world.namespace
            with real_picker(cluster, tmp_path, space, load_port=HEALTH_PORT) as picker:
                settings = {
                    "namespace": space, "model": "toy", "address": picker.address,
                    "ca": picker.ca, "timeout_ms": 5000, "pods": {"app": "epp"},
                }  # fmt: skip
                pickers = EngineSettings.model_validate({"pickers": [settings]}).pickers
                async with stage.world.agent(**stage.settings(pickers=[settings])):
                    for name in ("eng-one", "eng-two"):
                        await stage.put(name)
                    for name in ("eng-one", "eng-two"):
                        await stage.serves(name)
                    await picker.start(picker.make_pool("toy"))
                    # Keepers tell it their load.
                    await until(lambda: picker.gauge(READY) == 2)
                    chooser = ReplicaChooser(pickers, stage.executor.alike)
                    doors = stage.executor.doors
                    targets = Targets(endpoint=lambda _: "", doors=doors, chooser=chooser)
                    connection, _ = await connect(targets, "eng-one")
                    for number in range(12):
                        words = {"prompt": f"{number} the quick", "max_tokens": 4}
                        said = await ask(connection, **words)
                        assert said["usage"]["completion_tokens"] == 4
                    connection.close()
                    await chooser.close()
                    loads = await until(
                        stage.executor.engine_loads,
                        holds=lambda found: (
                            sum(one.generated_tokens for one in found.values()) == 48 + 2
                        ),
                    )
                    # Each keeper asked for one, before anybody else.
                    assert all(one.generated_tokens > 1 for one in loads.values())
