"""Any order of requests leads to at most one runner at a time, and converges."""

from hypothesis import given
from hypothesis import strategies as st

from windlass_agent.reconcile import Action, Actual, Desired, Want, decide

wants = st.sampled_from(Want)
# What happens besides wishes: the process ends by itself, or does what it was told.
EVENTS = ("ends", "obeys")
steps = st.lists(
    st.one_of(
        st.tuples(wants, st.booleans()),
        st.sampled_from(EVENTS),
    ),
    max_size=40,
)


class Machine:
    """A model of a driver: it takes the steps that `decide` tells, and processes end."""

    def __init__(self) -> None:
        self.desired = Desired(Want.RUNNING, 1)
        self.actual: Actual | None = None
        self.begun: list[int] = []

    def settle(self) -> None:
        for _ in range(10):
            action = decide(self.desired, self.actual)
            if action is Action.NOTHING:
                return
            self.take(action)
        raise AssertionError("it never comes to rest")

    def take(self, action: Action) -> None:
        if action is Action.START:
            assert self.actual is None, "a second runner"
            assert self.desired.want is Want.RUNNING
            self.begun.append(self.desired.attempt)
            self.actual = Actual(self.desired.attempt, alive=True)
            return
        assert self.actual is not None
        if action is Action.FORGET:
            assert not self.actual.alive, "forgot a runner"
            self.actual = None
        elif action is Action.STOP:
            assert self.actual.alive
            self.actual = Actual(self.actual.attempt, alive=True, stopping=True)
        elif action is Action.KILL:
            assert self.actual.alive
            self.actual = Actual(
                self.actual.attempt, alive=True, stopping=self.actual.stopping, killing=True
            )

    def end(self) -> None:
        if self.actual is not None and self.actual.alive:
            self.actual = Actual(self.actual.attempt, alive=False)
            self.settle()

    def obey(self) -> None:
        if self.actual is not None and (self.actual.stopping or self.actual.killing):
            self.end()


@given(steps)
def test_there_is_one_runner_at_most_and_the_wish_comes_true(
    history: list[tuple[Want, bool] | str],
) -> None:
    machine = Machine()
    machine.settle()
    for step in history:
        if isinstance(step, tuple):
            want, next_attempt = step
            machine.desired = Desired(want, machine.desired.attempt + next_attempt)
            machine.settle()
        elif step == "ends":
            machine.end()
        else:
            machine.obey()
    for _ in range(3):
        machine.obey()
    wish, actual = machine.desired, machine.actual
    if wish.want is Want.DELETED:
        assert actual is None
    elif wish.want is Want.STOPPED:
        assert actual is None or (not actual.alive and actual.attempt == wish.attempt)
    else:
        assert actual is not None
        assert actual.attempt == wish.attempt


@given(
    st.lists(st.sampled_from([Want.RUNNING, Want.STOPPED]), max_size=20),
    st.lists(st.booleans(), min_size=20, max_size=20),
)
def test_an_attempt_that_ended_does_not_begin_again(history: list[Want], ends: list[bool]) -> None:
    machine = Machine()
    machine.settle()
    for want, ended in zip(history, ends, strict=False):
        machine.desired = Desired(want, 1)
        machine.settle()
        if ended:
            machine.end()
    assert machine.begun == [1]


def test_a_wish_for_an_older_attempt_touches_nothing() -> None:
    running = Actual(2, alive=True)
    assert decide(Desired(Want.RUNNING, 1), running) is Action.NOTHING
