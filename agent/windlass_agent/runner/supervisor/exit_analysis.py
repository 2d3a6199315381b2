"""Analysis of torchrun's error report: the cause of a distributed training's failure.

One that dies takes the others along: they lose their connection to it, or torchrun ends them.
"""

import re
from pathlib import Path

from windlass_agent.machine.path_redaction import redact_paths
from windlass_agent.machine.program_output import tail
from windlass_agent.runner.protocol import outcome
from windlass_agent.runner.protocol.outcome import Failure

# With a failure of another node it says nothing new: see `executors.kubernetes.ends`.
CONSEQUENCE = "ProcessKilled"
_READ_BYTES = 256 * 1024
_REPORT = re.compile(r"^.*failed \(exitcode: -?\d+\) local_rank: ", re.MULTILINE)
_DEATH = re.compile(r"rank\s+: (\d+) \(local_rank: \d+\)\s+exitcode\s+: (-?\d+)")
_NOISE = re.compile(r"torch/distributed/(elastic|run\.py)|c10d.*(socket|TCPStore)")
_TERMINATED = -15
_LOST_PEER = re.compile(
    r"Connection (closed|reset) by peer|ncclRemoteError|remote process exited|Broken pipe"
    r"|Dist(Network|Store)Error|Rendezvous\w*Error"
)


def of_world(code: int, log: Path, *, nodes: int, memory_kills: int) -> Failure:
    """Returns why a training under torchrun failed, which itself ended with `code`.

    Of several nodes, one that merely lost another ends with `ProcessKilled`: that is no word
    on the job.
    """
    said = _REPORT.split(text := tail(log, _READ_BYTES))[0]
    deaths = [(int(rank), int(ended)) for rank, ended in _DEATH.findall(text)]
    words = "\n".join(line for line in said.splitlines() if not _NOISE.search(line))
    killed = [each for each in deaths if each[1] < 0 and each[1] != _TERMINATED]
    if nodes > 1 and not killed and _LOST_PEER.search(text):
        return Failure(
            CONSEQUENCE, "Another node of the job ended, and training cannot continue without it."
        )
    rank, code = next(iter(killed or deaths[-1:]), (0, code))
    return outcome.of_code(
        code,
        redact_paths(words, log.parent),
        memory_kills=memory_kills,
        who=f"Process {rank} of the trainer",
    )
