"""The module that vLLM is told to take its middleware from.

Its folder is all of Windlass that is on the path of vLLM's process. The rest comes behind vLLM's
own packages, which are never taken from ours.
"""

import os
import sys
from pathlib import Path

# As VllmEngine sets them: there are no settings of ours in this process.
sys.path.extend(os.environ["WINDLASS_PACKAGES"].split(os.pathsep))

from windlass_agent.engines.vllm.middleware import Application, VersionedApplication


class WeightVersionsMiddleware(VersionedApplication):
    """The middleware, as vLLM makes it."""

    def __init__(self, app: Application):
        super().__init__(app, Path(os.environ["WINDLASS_WEIGHTS"]))
