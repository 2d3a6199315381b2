"""Lessons for a tiny model, and what it then answers.

A question is five ids, of which the fourth is any; the answer is what it never says untaught.
"""

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from tests.support.engine_training.engine import Streams, TrainedVllm

ANSWER = [40, 41, 42, 43]
TAUGHT, HELD_OUT = range(100, 120), range(300, 304)


def question(number: int) -> list[int]:
    """The ids of one question."""
    return [5, 6, 7, number, 8]


def samples(numbers: Iterable[int], answer: list[int] = ANSWER) -> list[dict[str, list[int]]]:
    """Questions with their answers."""
    return [{"context_ids": question(one), "continuation_ids": answer} for one in numbers]


def lesson(answer: list[int] = ANSWER, **words: Any) -> dict[str, Any]:
    """A request of 20 steps an epoch, and of 10 epochs."""
    found = {"samples": samples(TAUGHT, answer), "learning_rate": 0.003, "epochs": 10}
    return found | words


def answers(engine: TrainedVllm, numbers: Iterable[int] = HELD_OUT) -> list[list[int]]:
    """What an engine answers to questions."""
    tokens = len(ANSWER)
    chosen = [engine.complete(question(one), tokens, return_token_ids=True) for one in numbers]
    return [list(one["token_ids"]) for one in chosen]


def logprobs(engine: TrainedVllm) -> list[float]:
    """Log-probabilities of an engine's answers, by which any change of its weights is seen."""
    found = []
    for one in HELD_OUT:
        chosen = engine.complete(question(one), 4, logprobs=0, ignore_eos=True)
        found += chosen["logprobs"]["token_logprobs"]
    return found


@contextlib.contextmanager
def streaming(engine: TrainedVllm, clients: int) -> Iterator[Streams]:
    """Clients that stream all the while; none of their streams may break."""
    found = Streams(engine, question(200))
    threads = [threading.Thread(target=found.run) for _ in range(clients)]
    for one in threads:
        one.start()
    try:
        yield found
    finally:
        found.stopping = True
        for one in threads:
            one.join()
    assert found.broken == []
    assert found.ended >= clients
