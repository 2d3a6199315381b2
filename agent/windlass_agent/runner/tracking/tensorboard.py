"""TensorBoard's event file: the job's whole history, as a file that any TensorBoard reads."""

from pathlib import Path

from windlass_agent.runner.reporting.metrics import History
from windlass_agent.runner.tracking.port import Unwilling

# TensorBoard finds files by this part of their names.
_NAME = "events.out.tfevents"


def write(folder: Path, history: History) -> Path:
    """Writes a scalar for each measurement, at its step and time; returns the file.

    Raises Unwilling where the extra `tensorboard` is not installed.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as error:
        raise Unwilling("the runner has no `tensorboard` package") from error
    drafts = folder / "tensorboard"
    writer = EventFileWriter(str(drafts))
    began = 0.0
    for step, at, values in history.points():
        began = began or at
        scalars = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        writer.add_event(Event(step=step, wall_time=at, summary=Summary(value=scalars)))
    writer.close()
    (draft,) = drafts.iterdir()
    # Its own name would tell of the machine.
    return draft.rename(folder / f"{_NAME}.{int(began)}.windlass")
