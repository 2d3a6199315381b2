"""The package `sglang` of tests: SGLang's wheel, but for its front end, which wants a notebook.

`launch_server` here takes the place of SGLang's. It generates words instead of running a model,
and has the wheel's own parser of flags, checks of keys, types of requests and answers, and chunks.
"""

from pathlib import Path

__path__.append(str(Path(__file__).parents[1] / "sglang_wheel"))
