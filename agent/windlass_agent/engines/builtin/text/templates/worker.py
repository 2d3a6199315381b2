"""`python -m …templates.worker`: renders what comes in on its input, a JSON line for each.

Its memory is bounded for good, its CPU time anew for each rendering: the kernel ends the process
that takes more.
"""

import json
import math
import resource
import sys
from typing import Any

CPU_SECONDS = 2
MEMORY_BYTES = 512 * 2**20
MAX_CHARACTERS = 16 * 2**20


def main() -> None:
    """Renders until its input ends."""
    # Before the import, which is a good part of what it will ever need.
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin.buffer:
        _allow_seconds(CPU_SECONDS)
        answer = json.dumps(_answer(json.loads(line)), ensure_ascii=False)
        sys.stdout.buffer.write(answer.encode(errors="replace") + b"\n")
        sys.stdout.buffer.flush()


def _allow_seconds(seconds: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    from windlass_agent.engines.builtin.text.templates.environment import render

    try:
        text = render(asked["template"], asked["variables"])
    except MemoryError:
        return {"costly": True}
    except Exception as error:
        # Whatever a template's expressions may raise is its refusal.
        return {"refused": str(error)[:1000]}
    return {"costly": True} if len(text) > MAX_CHARACTERS else {"text": text}


if __name__ == "__main__":
    main()
