"""kill -9 of each process that a model's answers go through, while its clients are at it.

What a client was told is what it is billed, cut or not; what engines have counted beside is what
a cut request had asked for yet, and no more.
"""

import openai
import psycopg
import pytest
from tests.faults.serving.clients import TOKENS, Request
from tests.faults.serving.served import Books, ServedSite
from tests.faults.site import kill
from tests.support.waiting import Watch, wait_until

from windlass.core.spool import read_lines

pytestmark = [pytest.mark.faults, pytest.mark.torch]
# A ping each 25 s that is answered in 10, and what a busy machine adds.
SILENT_SECONDS = 60


def cut_alone(requests: list[Request]) -> list[Request]:
    """The streams that ended with an error chunk; nothing else has failed."""
    cut = [one for one in requests if one.error]
    assert all(one.streams for one in cut), "what has begun nowhere is tried again"
    assert all(type(one.error) is openai.APIError and one.tokens for one in cut)
    assert all(one.tokens == TOKENS for one in requests if not one.error)
    return cut


def wasted(requests: list[Request], retried: int) -> int:
    """Tokens at most that engines made for nobody: the rest of what was cut, and first tries."""
    return sum(TOKENS - one.tokens for one in requests if one.error) + retried * TOKENS


def test_an_engine_is_killed(served: ServedSite) -> None:
    before, books = served.engines(), Books.of(served)
    with served.held() as opened:
        kill(before["far"])
    said = [served.say() for _ in range(3)]
    requests = opened.ended()
    assert len(cut_alone(requests)) == 1
    wait_until(lambda: served.engine(served.far) not in (None, before["far"]), "another one")
    assert served.engines()["near"] == before["near"]
    said += served.until_both_answer()
    # The counters of the first one are gone, with the stream that it broke off.
    lost = sum(one.tokens for one in requests if one.error)
    assert books.assert_billed([*requests, *said]) == -lost


def test_an_agent_is_killed_and_the_next_adopts_its_engine(served: ServedSite) -> None:
    before, books = served.engines(), Books.of(served)
    with served.held() as opened:
        served.far.kill()
    said = [served.say() for _ in range(3)]
    served.far.start()
    requests = opened.ended()
    assert len(cut_alone(requests)) == 1
    said += served.until_both_answer()
    assert served.engines() == before, "it did not start again"
    assert 0 <= books.assert_billed([*requests, *said]) <= wasted(requests, retried=1)


def test_a_gateway_is_killed_and_its_spool_is_replayed(served: ServedSite, database: str) -> None:
    before, books, windlass = served.engines(), Books.of(served), served.site.windlass
    with psycopg.connect(database) as connection:
        # The usage service stores nothing as long as this lasts.
        connection.execute("LOCK TABLE usage_records IN EXCLUSIVE MODE")
        said = [served.say() for _ in range(3)]
        with served.held() as opened:
            windlass.kill("gateway")
        requests = opened.ended()
        spool = (windlass.data / "spool" / "usage").glob("*.log")
        assert sum(len(list(read_lines(path))) for path in spool) == len(said)
    assert all(one.error for one in requests)
    windlass.start("gateway")
    windlass.wait_ready()
    said += served.until_both_answer()
    assert served.engines() == before
    # What it had not answered to the end is billed to nobody.
    unbilled = len(requests) * TOKENS
    assert 0 < books.assert_billed(said) <= unbilled


def test_a_server_is_killed(served: ServedSite) -> None:
    before, books, windlass = served.engines(), Books.of(served), served.site.windlass
    with served.held() as opened:
        windlass.kill("server")
    windlass.start("server")
    # The gateway holds what comes meanwhile: it knows the key, and where the engines are.
    said = [served.say() for _ in range(2)]
    requests = opened.ended()
    assert len(cut_alone(requests)) == 2
    said += served.until_both_answer()
    assert served.engines() == before
    assert 0 <= books.assert_billed([*requests, *said]) <= wasted(requests, retried=2)


@pytest.mark.long
def test_the_line_of_a_machine_is_cut_both_ways(served: ServedSite) -> None:
    before, books, said = served.engines(), Books.of(served), list[Request]()
    with served.held() as opened:
        served.line.cut()
    silent = Watch()

    def over() -> bool:
        said.append(served.say())
        return not opened.under_way

    # Nobody is told of the cut: what was under way ends by the silence alone.
    wait_until(over, "the ends of what was under way", 120, every=1.0)
    requests = opened.ended()
    assert silent.seconds() < SILENT_SECONDS
    assert len(cut_alone(requests)) == 1
    served.line.mend()
    said += served.until_both_answer()
    assert served.engines() == before
    assert 0 <= books.assert_billed([*requests, *said]) <= wasted(requests, retried=1)
