"""An agent whose runners are `stage.py`, as a process: ADDRESS CREDENTIAL DATA STAGE SPARES."""

import asyncio
import sys
from pathlib import Path

from windlass_agent.__main__ import run_agent
from windlass_agent.config import AgentSettings

STAGE = Path(__file__).with_name("stage.py")


def runner_command(folder: Path) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", str(STAGE), str(folder))


if __name__ == "__main__":
    address, credential, data, stage, spares = sys.argv[1:]
    settings = AgentSettings(
        control_plane=address,
        credential_file=Path(credential),
        data_dir=Path(data),
        slots=2,
        # The stage is no runner: it works in a folder of the test's.
        confinement="off",
        spare_trainers=int(spares),
    )
    asyncio.run(run_agent(settings, runner_command=runner_command(Path(stage))))
