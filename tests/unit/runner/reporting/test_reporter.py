"""What a runner's reports say in words."""

from pathlib import Path
from typing import cast

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass_agent.runner.protocol.link import AgentLink
from windlass_agent.runner.reporting.reporter import Reporter
from windlass_agent.runner.reporting.spool import EventSpool


def test_rewards_are_named_beside_the_loss(tmp_path: Path) -> None:
    spool = EventSpool(tmp_path / "events")
    reporter = Reporter(cast(AgentLink, None), spool)
    values = {"train_loss": -1e-9, "train_mean_reward": 0.5}
    reporter.metrics(pb.StepMetrics(step=1, total_steps=4), values)
    [told] = spool.batch(10)
    assert told.message == "Step 1/4: training reward=0.5000, training loss=0.0000"
