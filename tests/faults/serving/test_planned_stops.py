"""SIGTERM of an agent and of a gateway whose clients are at it: no answer is cut or lost."""

import threading

import openai
import pytest
from tests.faults.serving.clients import TOKENS
from tests.faults.serving.served import Books, ServedSite
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.torch]


def test_an_agent_that_stops_lets_its_answers_end(served: ServedSite) -> None:
    served.engines()
    books, far = Books.of(served), served.far
    with served.held() as opened:
        assert far.process is not None
        far.process.terminate()
        # The routes leave it out meanwhile: what comes is for the other one.
        wait_until(lambda: ready(served) == 1, "news of its stop")
        assert far.process.poll() is None
    said = [served.say() for _ in range(3)]
    requests = opened.ended()
    assert [one.error for one in requests] == [None] * 4
    assert {one.tokens for one in requests} == {TOKENS}
    far.process.wait(60)
    far.start()
    said += served.until_both_answer()
    books.assert_billed([*requests, *said])


def test_a_second_signal_cuts_what_is_open(served: ServedSite) -> None:
    served.engines()
    books = Books.of(served)
    with served.held() as opened:
        assert served.far.process is not None
        served.far.process.terminate()
        wait_until(lambda: ready(served) == 1, "news of its stop")
        served.far.stop()
    requests = opened.ended()
    assert [one.streams for one in requests if one.error] == [True]
    served.far.start()
    # What comes after has books of its own.
    books.until_billed([*requests, *served.until_both_answer()])


def test_a_gateway_that_stops_answers_what_it_has_and_nothing_new(served: ServedSite) -> None:
    served.engines()
    books, windlass = Books.of(served), served.site.windlass
    with served.held() as opened:
        stopping = threading.Thread(target=windlass.terminate, args=["gateway"])
        stopping.start()
        wait_until(lambda: not is_ready(served), "the gateway's readiness to end")
        with pytest.raises(openai.InternalServerError) as refused:
            served.say()
    assert (refused.value.status_code, refused.value.code) == (503, "draining")
    assert refused.value.response.headers["retry-after"] == "1"
    assert refused.value.response.headers["connection"] == "close"
    requests = opened.ended()
    stopping.join(60)
    assert not stopping.is_alive()
    assert [one.error for one in requests] == [None] * 4
    windlass.start("gateway")
    windlass.wait_ready()
    books.assert_billed([*requests, *served.until_both_answer()])


def ready(served: ServedSite) -> int:
    found = served.site.get("/servings/toy")["ready_replicas"]
    assert isinstance(found, int)
    return found


def is_ready(served: ServedSite) -> bool:
    with served.site.windlass.http() as http:
        return http.get("/readyz").is_success
