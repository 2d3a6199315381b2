"""Bad input and bad days, each with a real runner: a clear error, nothing lost, no orphan."""

import asyncio
import json
import signal
from pathlib import Path

import grpc
import psutil
import pytest
from safetensors.torch import load_file, save_file
from tests.integration.runner.cases import Case
from tests.support.processes.windlass import free_port

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass_agent.executors.process.jobs.logs import RedactedLog

TESTS = Path(__file__).parents[3]
SITE = str(Path(psutil.__file__).parents[1])
GOOD = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}


async def test_a_bad_line_is_named(case: Case) -> None:
    bad = {"messages": [{"role": "wizard", "content": "a"}]}
    case.assign(rows=[GOOD, bad])
    runner = await case.start()
    assert await runner.wait() == 1

    code, message, param = case.errors()
    assert (code, param) == ("invalid_training_file", "training_file")
    assert message.startswith("Line 2:")
    assert "wizard" in message
    told = [event for event in case.agent.events.values() if message in event.message]
    assert not told, "the job itself has an event for its failure"


async def test_a_file_of_the_other_format_is_refused(case: Case) -> None:
    case.assign(method="dpo", rows=[GOOD])
    runner = await case.start()
    assert await runner.wait() == 1
    assert case.errors()[:2] == (
        "invalid_training_file",
        "Line 1: This training needs preference examples. (wrong_format)",
    )


@pytest.mark.torch
async def test_a_model_without_a_chat_template_is_refused(case: Case) -> None:
    (case.model / "chat_template.jinja").unlink()
    case.assign()
    runner = await case.start()
    assert await runner.wait() == 1
    code, message, param = case.errors()
    assert (code, param) == ("model_has_no_chat_template", "model")
    assert "chat template" in message


@pytest.mark.torch
async def test_a_tokenizer_of_another_model_is_refused(case: Case) -> None:
    config = json.loads((case.model / "config.json").read_text())
    (case.model / "config.json").write_text(json.dumps({**config, "vocab_size": 20}))
    case.assign()
    runner = await case.start()
    assert await runner.wait() == 1
    code, message, param = case.errors()
    assert (code, param) == ("tokenizer_does_not_fit", "model")
    assert "the model has only 20 tokens" in message


@pytest.mark.torch
async def test_an_example_that_the_template_refuses_is_named(case: Case) -> None:
    template = case.model / "chat_template.jinja"
    refusal = "{% if messages[0].content == 'c' %}{{ raise_exception('no c here') }}{% endif %}"
    template.write_text(refusal + template.read_text())
    other = {"messages": [{"role": "user", "content": "c"}, GOOD["messages"][1]]}
    case.assign(rows=[GOOD, GOOD, other])
    runner = await case.start()
    assert await runner.wait() == 1
    code, message, _ = case.errors()
    assert code == "invalid_training_file"
    assert message.startswith("Line 3:")
    assert "no c here" in message


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["chat", "unpaired"])
async def test_tools_that_the_template_leaves_out_are_refused(case: Case, kind: str) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    called = {"role": "assistant", "tool_calls": [call]}
    if kind == "chat":
        case.assign(rows=[GOOD, {"messages": [GOOD["messages"][0], called]}])
        line, missing = 2, "calls of tools"
    else:
        good, *rest = case.labelled(4)
        case.assign(method="kto", rows=[{**good, "tools": tools}, *rest])
        line, missing = 1, "tools"
    runner = await case.start()
    assert await runner.wait() == 1
    code, message, param = case.errors()
    assert (code, param) == ("invalid_training_file", "training_file")
    assert message.startswith(
        f"Line {line}: the base model's chat template does not render {missing}"
    )


@pytest.mark.torch
async def test_long_examples_are_counted(case: Case) -> None:
    long = {"messages": [GOOD["messages"][0], {"role": "assistant", "content": "long " * 200}]}
    case.assign(rows=[GOOD] * 7 + [long], max_length=64, max_steps=1)
    runner = await case.start()
    assert await runner.wait() == 0, case.log()
    warnings = [e.message for e in case.agent.events.values() if e.level == pb.LEVEL_WARN]
    assert warnings == ["1 of 8 training examples exceed 64 tokens and are truncated."]


@pytest.mark.torch
async def test_a_file_of_long_examples_alone_fails(case: Case) -> None:
    long = {"messages": [GOOD["messages"][0], {"role": "assistant", "content": "long " * 200}]}
    case.assign(rows=[long] * 3, max_length=64)
    runner = await case.start()
    assert await runner.wait() == 1
    assert case.errors()[:2] == ("invalid_training_file", "All 3 examples exceed 64 tokens.")


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "value", "code", "said"),
    [
        ("norm", float("nan"), "loss_not_finite", "The loss is no longer a number at step 1."),
        # Its square is none in float32: the loss is a number yet, and the next weights are not.
        ("embed_tokens", 1e25, "gradient_not_finite", "The gradients are no longer numbers at"),
    ],
)
async def test_a_training_that_diverges_ends_before_it_saves(
    case: Case, name: str, value: float, code: str, said: str
) -> None:
    weights = case.model / "model.safetensors"
    tensors = load_file(weights)
    tensors[f"model.{name}.weight"].fill_(value)
    save_file(tensors, weights, metadata={"format": "pt"})
    case.assign(epochs=2)
    runner = await case.start()
    assert await runner.wait() == 1
    assert case.errors()[0] == code
    assert case.errors()[1].startswith(said)
    assert not case.agent.of_kind(pb.ARTIFACT_KIND_CHECKPOINT)


@pytest.mark.torch
async def test_broken_weights_fail_with_one_sentence(case: Case) -> None:
    (case.model / "model.safetensors").write_bytes(b"not a safetensors file")
    case.assign()
    runner = await case.start()
    assert await runner.wait() == 1
    code, message, _ = case.errors()
    assert code == "trainer_failed"
    assert message.startswith("The trainer ended with code 1: safetensors")
    assert "Traceback" not in message
    assert len(message.splitlines()) == 1
    # Nor does what its tenant reads of the log name where that lies.
    shown = RedactedLog(case.workdir / "log").read(0, whole=True).decode()
    assert 'File "transformers/' in shown
    assert SITE in (case.workdir / "log").read_text(), "the operator's log is whole"
    for text in (message, shown, *(event.message for event in case.agent.events.values())):
        assert not [root for root in (case.workdir, SITE, TESTS) if str(root) in text]


async def test_a_url_that_expired_is_asked_for_again(case: Case) -> None:
    case.assign(rows=[b"not json"])
    case.agent.expired = {"model/model.safetensors", "train.jsonl"}
    runner = await case.start()
    assert await runner.wait() == 1
    # It came as far as reading the file.
    assert case.errors()[0] == "invalid_training_file"


async def test_a_download_that_is_not_what_was_promised_fails(case: Case) -> None:
    case.assign()
    case.agent.assignment.training_file.sha256 = bytes(32)
    runner = await case.start()
    assert await runner.wait() == 1
    code, message, _ = case.errors()
    assert code == "download_failed"
    assert "checksum" in message


async def test_a_store_that_stays_away_ends_the_job(case: Case) -> None:
    case.assign()
    case.agent.assignment.training_file.url = "nowhere.jsonl"
    runner = await case.start("--patience", "1")
    assert await runner.wait() == 1
    assert case.errors()[0] == "download_failed"


async def test_a_store_that_cannot_be_reached_is_told(case: Case) -> None:
    """Before its patience ends, once, and without its address."""
    case.assign()
    case.agent.assignment.training_file.url = f"http://127.0.0.1:{free_port()}/train.jsonl?secret"
    runner = await case.start("--patience", "60")
    await case.until(lambda: _warnings(case))
    runner.terminate()
    await runner.wait()
    (warning,) = _warnings(case)
    assert "cannot be downloaded now; retrying: the object store cannot be reached." in warning
    assert "127.0.0.1" not in warning


def _warnings(case: Case) -> list[str]:
    return [e.message for e in case.agent.events.values() if e.level == pb.LEVEL_WARN]


async def test_an_interrupted_download_goes_on_where_it_ended(case: Case) -> None:
    case.assign(rows=[b"not json"])
    weights = (case.model / "model.safetensors").read_bytes()
    part = case.workdir / "inputs" / "model" / "model.safetensors.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(weights[:1_000_000])
    runner = await case.start()
    assert await runner.wait() == 1
    assert case.errors()[0] == "invalid_training_file"
    assert case.agent.ranges == {"model/model.safetensors": "bytes=1000000-"}


@pytest.mark.torch
async def test_nothing_is_lost_while_the_agent_is_away(case: Case) -> None:
    case.assign(epochs=4, validation=True)
    runner = await case.start()
    await case.until(lambda: case.agent.values("train_loss"))
    await case.agent.leave()
    known = len(case.agent.events)
    await case.until(lambda: _spooled(case) >= 5)
    assert len(case.agent.events) == known
    await case.agent.listen()
    assert await runner.wait() == 0, case.log()

    assert case.agent.finish is not None
    assert sorted(case.agent.events) == list(range(1, case.agent.finish.last_seq + 1))
    assert len(case.agent.values("train_loss")) == 12
    assert [each.step for each in case.agent.of_kind(pb.ARTIFACT_KIND_CHECKPOINT)] == [3, 6, 9, 12]
    assert _spooled(case) == 0


def _spooled(case: Case) -> int:
    return len((case.workdir / "spool.jsonl").read_bytes().splitlines())


@pytest.mark.torch
async def test_an_upload_is_repeated_until_it_is_whole(case: Case) -> None:
    case.assign(max_steps=1)
    case.agent.mishaps = ["refuse", "cut", "refuse"]
    runner = await case.start()
    assert await runner.wait() == 0, case.log()
    assert not case.agent.mishaps
    assert all(each.is_whole for each in case.agent.artifacts.values())


@pytest.mark.torch
@pytest.mark.faults
async def test_a_killed_runner_leaves_no_trainer(case: Case) -> None:
    case.assign(max_steps=500)
    runner = await case.start(cold=True)
    await case.until(lambda: case.agent.values("train_loss"))
    (trainer,) = case.trainers(runner)
    assert "trainers.trl.entry" in " ".join(trainer.cmdline())
    assert "AWS_SECRET_ACCESS_KEY" not in trainer.environ()
    runner.kill()
    await runner.wait()
    await case.until(lambda: not trainer.is_running() or _is_dead(trainer))


@pytest.mark.torch
@pytest.mark.faults
async def test_a_killed_trainer_is_reported(case: Case) -> None:
    case.assign(max_steps=500)
    runner = await case.start(cold=True)
    await case.until(lambda: case.agent.values("train_loss"))
    (trainer,) = case.trainers(runner)
    trainer.kill()
    assert await runner.wait() == 1
    assert case.errors()[0] == "ProcessKilled", "the kernel counts no kill for memory"


@pytest.mark.torch
async def test_a_second_signal_does_not_wait(case: Case) -> None:
    case.assign(max_steps=500)
    runner = await case.start(cold=True)
    await case.until(lambda: case.agent.values("train_loss"))
    runner.terminate()
    await asyncio.sleep(0)
    runner.send_signal(signal.SIGTERM)
    assert await runner.wait() == 143
    assert case.agent.finish is not None
    assert case.agent.finish.outcome == pb.OUTCOME_STOPPED
    assert case.trainers(runner) == []


async def test_a_stop_before_the_training_is_a_stop(case: Case) -> None:
    case.assign()
    case.agent.assignment.training_file.url = "nowhere.jsonl"
    runner = await case.start()
    await case.until(lambda: case.agent.events)
    runner.terminate()
    assert await runner.wait() == 143
    assert case.agent.finish is not None
    assert case.agent.finish.outcome == pb.OUTCOME_STOPPED


async def test_a_refused_attempt_ends_without_a_word(case: Case) -> None:
    case.assign()
    case.agent.refusals = grpc.StatusCode.FAILED_PRECONDITION
    runner = await case.start()
    assert await runner.wait() == 3
    assert case.agent.finish is None
    assert not (case.workdir / "exit.json").exists()


async def test_a_path_that_leaves_its_folder_is_refused(case: Case) -> None:
    case.assign()
    case.agent.assignment.model_files[0].path = "../../outside.json"
    runner = await case.start()
    assert await runner.wait() == 1
    assert case.errors()[0] == "download_failed"
    assert not (case.workdir.parent / "outside.json").exists()


def _is_dead(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
