"""The section of quotas."""

from pydantic import Field

from windlass.core.config.sections import Section


class QuotasSection(Section):
    """Default quotas of each project, unless it has its own; 0 means no bound."""

    engines: int = Field(4, ge=0, description="Running engines of the project's own models.")
    jobs: int = Field(10_000, ge=0, description="Jobs that have not ended.")
    running_jobs: int = Field(
        1000, ge=0, description="Jobs placed in a cluster; further jobs wait."
    )
    uploads: int = Field(100, ge=0, description="Uploads of files and models in progress.")
    stored_bytes: int = Field(2**40, ge=0, description="Bytes of stored files and models.")
    fetched_bytes: int = Field(
        2**40,
        ge=0,
        description="Bytes fetched from hubs in 24 hours; as many more may be prefetched.",
    )
    event_streams: int = Field(100, ge=0, description="Open event streams of jobs.")
    engine_trainings: int = Field(
        100, ge=0, description="Trainings and checkpoints of engines that have not ended."
    )
    tuning_runs: int = Field(100, ge=0, description="Open models of loops of the tinker SDK.")
    tuning_full_runs: int = Field(
        2, ge=0, description="Such models all of whose parameters are trained, of live sessions."
    )
    tuning_operations: int = Field(
        10_000, ge=0, description="Operations of such loops that have no result yet."
    )
    tuning_body_bytes: int = Field(
        2**36, ge=0, description="Bytes of what such models were asked, while it is kept."
    )
    tuning_checkpoints: int = Field(10_000, ge=0, description="Named checkpoints of such models.")
    tuning_checkpoint_bytes: int = Field(
        2**40, ge=0, description="Bytes of checkpoints of such models, with and without a name."
    )
    projects: int = Field(1000, ge=0, description="Projects of an organization.")
