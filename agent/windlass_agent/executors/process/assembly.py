"""Puts a process executor together."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from windlass.api.clusters.v1 import clusters_pb2
from windlass.bounds import MAX_MODEL_VERSIONS
from windlass.confinement import Mode, python_paths
from windlass.confinement import confinement as confine
from windlass.engine_flags import lightens
from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.download import LocalObjects, ModelCache, no_objects
from windlass_agent.engines.registry import NONE_BESIDE, EnginePrograms
from windlass_agent.engines.registry import engines as installed_engines
from windlass_agent.executors.adopted import AdoptedDriver
from windlass_agent.executors.port import ADOPTED, WorkloadDriver
from windlass_agent.executors.process.allocator import ENGINE, JOB, Allocator
from windlass_agent.executors.process.allotment import ResourceRequest
from windlass_agent.executors.process.engines.driver import EngineDriver
from windlass_agent.executors.process.executor import ProcessExecutor
from windlass_agent.executors.process.jobs.attempt import AttemptContext
from windlass_agent.executors.process.jobs.driver import ProcessJobDriver
from windlass_agent.executors.process.jobs.records import Records
from windlass_agent.executors.process.jobs.runners import RUNNER_COMMAND, Runners
from windlass_agent.executors.process.jobs.spares import Spares
from windlass_agent.executors.process.prefetches import PrefetchDriver
from windlass_agent.executors.process.trainings.driver import EngineTrainingDriver
from windlass_agent.folders import private_folder, socket_folder
from windlass_agent.machine import Machine
from windlass_agent.machine.backends import installed_libraries, runnable_backends
from windlass_agent.runner_service import RunnerServer, RunnerTokens


def process_executor(
    *,
    data: Path,
    control: ControlPlane,
    changed: Callable[[], None],
    machine: Machine,
    slots: int,
    engine_slots: int,
    engine_share: ResourceRequest,
    drain_seconds: float,
    engine_drain_seconds: float = 60.0,
    stop_on_close: bool,
    runner_command: Sequence[str] = RUNNER_COMMAND,
    torchtune_python: Path | None = None,
    programs: EnginePrograms = NONE_BESIDE,
    confinement: Mode = "preferred",
    spare_trainers: int = 0,
    spare_idle_seconds: float = 0.0,
    direct: clusters_pb2.DirectEndpoint | None = None,
    local_objects: LocalObjects = no_objects,
    weights_folder: Path | None = None,
) -> ProcessExecutor:
    """The executor of one agent, with everything that it remembers under `data`.

    `torchtune_python` runs TorchTune jobs where the agent's own Python cannot, `programs` engines
    other than the built-in one; `spare_trainers` is how many trainers wait for a job once one has
    run here, each for at most `spare_idle_seconds`. `direct` leads to engines beside the tunnel.
    `local_objects` knows the files of a store that is a folder of this machine; `weights_folder`
    has versions of weights that engines follow.
    Raises NoConfinement where `confinement` is required and cannot be had.
    """
    walls = confine(confinement)
    if walls.confines:
        runner_command = (*runner_command, "--confined")
    if torchtune_python is not None:
        runner_command = (*runner_command, "--torchtune-python", str(torchtune_python))
    tokens = RunnerTokens()
    sockets = socket_folder(data)
    # In a folder of its own: runners see it whole, so that a socket made anew is seen as well.
    server = RunnerServer(private_folder(sockets / "agent") / "s", tokens, control)
    walls.show(sockets / "agent")
    allocator = Allocator(machine)
    jobs, engines = allocator.places(JOB, slots), allocator.places(ENGINE, engine_slots)
    kinds = installed_engines(programs)
    runners = Runners(
        command=runner_command,
        agent_address=server.address,
        confinement=walls,
        readable=(sockets / "agent", *python_paths(torchtune_python)),
    )
    context = AttemptContext(
        records=Records(data / "workloads"),
        places=jobs,
        tokens=tokens,
        control=control,
        runners=runners,
        spares=Spares(
            data.resolve() / "spares",
            runners,
            count=spare_trainers,
            idle_seconds=spare_idle_seconds,
        ),
        drain_seconds=drain_seconds,
        changed=changed,
    )
    models, share = (
        ModelCache(data / "models", local=local_objects),
        _bounded(engine_share, machine),
    )
    engine_driver = EngineDriver(
        data=data,
        models=models,
        sockets=sockets,
        places=engines,
        share=share,
        engines=kinds,
        drain_seconds=engine_drain_seconds,
        changed=changed,
        stop_on_close=stop_on_close,
        confinement=walls,
        weights=weights_folder,
        local_objects=local_objects,
    )
    drivers: dict[str, WorkloadDriver] = {
        "job": ProcessJobDriver(context, stop_on_close=stop_on_close),
        "engine": engine_driver,
        "prefetch": PrefetchDriver(models, changed),
        "engine_training": EngineTrainingDriver(
            private_folder(data / "trainings"), engine_driver.trained, models.path, changed
        ),
        "stack": AdoptedDriver(
            sockets=sockets, drain_seconds=engine_drain_seconds, changed=changed
        ),
    }
    return ProcessExecutor(
        drivers=drivers,
        loads=engine_driver.loads,
        allocator=allocator,
        jobs=jobs,
        engines=engines,
        kinds=(*sorted(kinds), ADOPTED),
        sleeping=tuple(sorted(name for name, kind in kinds.items() if kind.sleeps(share.gpus))),
        training=tuple(sorted(name for name, kind in kinds.items() if kind.capabilities.training)),
        runners=server,
        backends=runnable_backends(torchtune_python),
        libraries=installed_libraries(),
        versions=partial(models.complete_models, MAX_MODEL_VERSIONS),
        changed=changed,
        direct=direct,
        tells_memory=not any(map(lightens, (*programs.vllm_flags, *programs.sglang_flags))),
    )


def _bounded(share: ResourceRequest, machine: Machine) -> ResourceRequest:
    """An engine's share where the machine has less than that."""
    return ResourceRequest(
        gpus=min(share.gpus, len(machine.devices)),
        cpus=min(share.cpus, machine.cpus),
        memory_bytes=min(share.memory_bytes, machine.memory_bytes),
    )
