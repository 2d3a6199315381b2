"""`windlass-agent` whose runners have its kill points: a variable that no agent hands on."""

import os
from functools import partial

from windlass.core.killpoints import VARIABLE
from windlass_agent import __main__ as agent
from windlass_agent.executors.process.jobs.runners import RUNNER_COMMAND

if __name__ == "__main__":
    command = ("env", f"{VARIABLE}={os.environ[VARIABLE]}", *RUNNER_COMMAND)
    agent.run_agent = partial(agent.run_agent, runner_command=command)
    agent.cli()
