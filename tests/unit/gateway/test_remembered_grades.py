"""Grades are remembered for the question that they answer, and for no other."""

from windlass.api.gateway.v1 import gateway_pb2 as pb
from windlass.api.runner.v1 import runner_pb2
from windlass.gateway.service import grade_key

ANSWER = runner_pb2.Answer(sample="b", item=b"{}")


def asked(batch: str = "1", grader: bytes = b"{}") -> pb.GradeRequest:
    inner = runner_pb2.GradeRequest(batch=batch)
    return pb.GradeRequest(job_id="ftjob-1", batch=inner, grader=grader)


def test_a_repeat_has_the_same_key() -> None:
    assert grade_key(asked(), ANSWER) == grade_key(asked(), ANSWER)


def test_another_grader_of_the_same_job_has_another() -> None:
    assert grade_key(asked(grader=b"[]"), ANSWER) != grade_key(asked(), ANSWER)


def test_no_text_runs_into_the_next() -> None:
    one = grade_key(asked("a\0b"), runner_pb2.Answer(sample="c", item=b"{}"))
    assert one != grade_key(asked("a"), runner_pb2.Answer(sample="b\0c", item=b"{}"))
