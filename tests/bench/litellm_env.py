"""Makes the virtual environment of LiteLLM's proxy: `python -m tests.bench.litellm_env`.

It has one of its own (some 120 packages, 0.75 GB on disk), so that it cannot disturb ours.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench import plant
from tests.support.environments import made_once

REQUIREMENTS = ("litellm[proxy]==1.106.2",)
KEY = "sk-bench-of-the-loopback-alone"


def ensure() -> Path:
    """The environment's `litellm`, installed once; raises CalledProcessError when it cannot be."""
    return made_once.environment("litellm-env", *REQUIREMENTS) / "litellm"


@contextmanager
def running(port: int, *, model: str, engine: str, folder: Path) -> Iterator[int]:
    """The proxy with one worker and a key, without a database; answers its pid."""
    program = ensure()
    config = folder / "litellm.json"
    target = {"model": f"openai/{model}", "api_base": f"{engine}/v1", "api_key": "none"}
    document = {
        "model_list": [{"model_name": model, "litellm_params": target}],
        "litellm_settings": {"telemetry": False, "num_retries": 0},
        "general_settings": {"master_key": KEY},
    }
    config.write_text(json.dumps(document))
    environment = {
        "PATH": f"{program.parent}:/usr/bin:/bin",
        "HOME": str(folder),
        "LITELLM_LOG": "ERROR",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    }
    options = ("--host", "127.0.0.1", "--port", str(port), "--num_workers", "1")
    command = [str(program), "--config", str(config), *options]
    alive = f"http://127.0.0.1:{port}/health/liveliness"
    log = folder / "litellm.log"
    with plant.started(command, alive, seconds=120, log=log, env=environment, cwd=folder) as pid:
        yield pid


if __name__ == "__main__":
    print(ensure())
