"""Requests that name a session, a run, a sampler, an operation or a checkpoint of a project."""

from collections.abc import Callable

from google.protobuf.message import Message
from tests.support.factories.tenant_rpcs.names import Names

from windlass.api.tinker.v1 import tinker_pb2 as wire
from windlass.api.tuning.v1 import transfer_pb2 as transfer
from windlass.api.tuning.v1 import tuning_pb2 as tuning

# A model of which the tests' servers have a trainer.
BASE_MODEL = "toy"
SETTINGS = tuning.RunSettings(
    rank=8, train_attention=True, train_mlp=True, train_unembedding=True, optimizer="adamw"
)


# The sum of the log-probabilities.
LOSS = (
    '{"inputs": [{"name": "logprobs", "rank": 1}], "graph": {"format": 1, "nodes": ['
    '{"op": "placeholder", "name": "logprobs", "target": "logprobs"},'
    '{"op": "call_method", "name": "sum_1", "target": "sum", "args": [{"ref": "logprobs"}]},'
    '{"op": "output", "name": "output", "target": "output",'
    ' "args": [{"tuple": [{"ref": "sum_1"}, {"dict": {}}]}]}]}}'
)


def _checkpoint(n: Names) -> str:
    return n.weights.split("/", maxsplit=3)[3]


def _bodies(n: Names) -> list[tuning.OperationBody]:
    return [
        tuning.OperationBody(
            forward_backward=wire.ForwardBackwardRequest(model_id=n.run, loss_fn="cross_entropy")
        ),
        tuning.OperationBody(optim_step=tuning.OptimStep()),
        tuning.OperationBody(save_state=tuning.SaveState(name="mine")),
        tuning.OperationBody(save_sampler=tuning.SaveSampler(sampler_number=1)),
        tuning.OperationBody(load_state=tuning.LoadState(path=n.weights)),
        tuning.OperationBody(save_external=tuning.SaveExternal(name="mine")),
    ]


OF_TUNING: dict[str, Callable[[Names], list[Message]]] = {
    "TuningService/Heartbeat": lambda n: [tuning.HeartbeatRequest(session_id=n.session)],
    "TuningService/FinishSession": lambda n: [
        tuning.FinishSessionRequest(session_id=n.session, end="success")
    ],
    "TuningService/GetSession": lambda n: [tuning.GetSessionRequest(session_id=n.session)],
    "TuningService/CreateRun": lambda n: [
        tuning.CreateRunRequest(
            session_id=n.session, number=7, base_model=BASE_MODEL, settings=SETTINGS
        ),
        tuning.CreateRunRequest(session_id=n.session, number=7, from_path=n.weights),
    ],
    "TuningService/GetRun": lambda n: [tuning.GetRunRequest(run_id=n.run)],
    "TuningService/DeleteRun": lambda n: [tuning.DeleteRunRequest(run_id=n.run)],
    "TuningService/ReplayRun": lambda n: [tuning.ReplayRunRequest(run_id=n.run)],
    "TuningService/ForkRun": lambda n: [tuning.ForkRunRequest(run_id=n.run)],
    "TuningService/Submit": lambda n: [
        tuning.SubmitRequest(run_id=n.run, seq_id=seq_id, body=body)
        for body in _bodies(n)
        for seq_id in (0, 1)
    ],
    "TuningService/CreateSampler": lambda n: [
        tuning.CreateSamplerRequest(session_id=n.session, number=3, base_model=BASE_MODEL),
        tuning.CreateSamplerRequest(session_id=n.session, number=3, path=n.weights),
    ],
    "TuningService/GetSampler": lambda n: [tuning.GetSamplerRequest(sampler_id=n.sampler)],
    "TuningService/Sample": lambda n: [
        tuning.SampleRequest(sampler_id=n.sampler, sampling=tuning.Sampling(count=1)),
        tuning.SampleRequest(sampling=tuning.Sampling(count=1, path=n.weights)),
    ],
    "TuningService/GetResult": lambda n: [tuning.GetResultRequest(operation_id=n.operation)],
    "TuningService/JoinSampler": lambda n: [tuning.JoinSamplerRequest(sampler_id=n.sampler)],
    "TuningService/CancelOperation": lambda n: [
        tuning.CancelOperationRequest(operation_id=n.operation)
    ],
    "TuningService/PollEnded": lambda n: [tuning.PollEndedRequest(sampler_id=n.sampler)],
    "TuningService/CreateLoss": lambda n: [
        tuning.CreateLossRequest(session_id=n.session, number=0, name="mine", document=LOSS)
    ],
    "TransferService/PublishCheckpoint": lambda n: [
        transfer.PublishCheckpointRequest(run_id=n.run, checkpoint_id=_checkpoint(n))
    ],
    "TransferService/UnpublishCheckpoint": lambda n: [
        transfer.UnpublishCheckpointRequest(run_id=n.run, checkpoint_id=_checkpoint(n))
    ],
    "TransferService/CopyCheckpoint": lambda n: [
        transfer.CopyCheckpointRequest(source_path=n.weights, idempotency_key="k"),
        transfer.CopyCheckpointRequest(source_path=n.weights, session_id=n.session, number=9),
        transfer.CopyCheckpointRequest(source_path=n.weights, access="never given"),
    ],
    "TransferService/GetDownloads": lambda n: [
        transfer.GetDownloadsRequest(run_id=n.run, checkpoint_id=_checkpoint(n), archive=archive)
        for archive in (False, True)
    ],
    "TransferService/LendCheckpoint": lambda n: [transfer.LendCheckpointRequest(path=n.weights)],
    "TransferService/RegisterCheckpoint": lambda n: [
        transfer.RegisterCheckpointRequest(run_id=n.run, checkpoint_id=_checkpoint(n), suffix="x")
    ],
    "TransferService/ServeCheckpoint": lambda n: [transfer.ServeCheckpointRequest(path=n.weights)],
    "TransferService/ExportTrace": lambda n: [transfer.ExportTraceRequest(session_id=n.session)],
    "TuningService/GetCheckpoint": lambda n: [tuning.GetCheckpointRequest(path=n.weights)],
    "TuningService/ListCheckpoints": lambda n: [tuning.ListCheckpointsRequest(run_id=n.run)],
    "TuningService/KeepCheckpoint": lambda n: [
        tuning.KeepCheckpointRequest(run_id=n.run, checkpoint_id=_checkpoint(n))
    ],
    "TuningService/DeleteCheckpoint": lambda n: [
        tuning.DeleteCheckpointRequest(run_id=n.run, checkpoint_id=_checkpoint(n))
    ],
}
