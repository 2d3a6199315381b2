"""Environments of the scripts beside this, whose libraries pin their own versions."""

import subprocess
import sys
from pathlib import Path

from tests.support.environments.made_once import CACHE, environment, once

PYTHON = ("langchain-openai==1.7.3", "langchain==1.4.7", "litellm[mcp]==1.106.2")
GENERATOR = ("openapi-python-client==0.29.1",)
NODE = ("openai@7.57.0", "zod@4.6.7")


def python() -> Path:
    """An interpreter with LangChain and LiteLLM; installs them, at most once."""
    return environment("python-clients", *PYTHON) / "python"


def generator() -> Path:
    """The programs of a generator of clients, and what they need; installs them, at most once."""
    return environment("client-generator", *GENERATOR)


def node_modules() -> Path:
    """A folder with OpenAI's SDK for Node and zod; installs them, at most once."""

    def make(folder: Path) -> None:
        folder.mkdir(parents=True)
        quiet = ("--no-audit", "--no-fund", "--silent")
        subprocess.run(
            ["npm", "install", "--prefix", folder, *quiet, *NODE], check=True, stdout=sys.stderr
        )

    return once("node-clients", "\n".join(NODE), make, home=CACHE) / "node_modules"
