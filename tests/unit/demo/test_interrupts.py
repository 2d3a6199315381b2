"""When a signal ends the demo, and when it has to wait."""

import signal
from collections.abc import Iterator

import pytest

from windlass.demo.interrupts import Interrupts


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    hung_up = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    made = Interrupts()
    made.install()
    yield made
    for number, handler in {**before, signal.SIGHUP: hung_up}.items():
        signal.signal(number, handler)


def test_the_first_interrupts_and_no_other(interrupts: Interrupts) -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGINT)
    with interrupts.held():
        signal.raise_signal(signal.SIGINT)
    assert interrupts.came


def test_a_block_that_holds_it_is_finished_first(interrupts: Interrupts) -> None:
    done = []

    def work() -> None:
        with interrupts.held():
            signal.raise_signal(signal.SIGINT)
            done.append("the block")
        done.append("the rest")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["the block"]


def test_what_nohup_ignored_stays_ignored(interrupts: Interrupts) -> None:
    signal.raise_signal(signal.SIGHUP)
    assert not interrupts.came
