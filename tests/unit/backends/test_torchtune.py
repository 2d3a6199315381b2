import pytest

from windlass.backends import (
    InvalidConfig,
    LLMBackend,
    LoraConfig,
    Sizing,
    TorchTuneConfig,
    TorchTuneInstructDataset,
    get_backend,
)


def test_it_is_installed_under_its_name() -> None:
    assert get_backend("torchtune") is TorchTuneConfig
    assert issubclass(TorchTuneConfig, LLMBackend)
    assert TorchTuneConfig().to_command() == ("tune", "run")


def test_what_callers_write_is_read_and_written_back() -> None:
    config = TorchTuneConfig(num_nodes=2, resources_per_node={"gpu": 8})
    assert (config.num_nodes, config.resources_per_node) == (2, {"gpu": 8})
    config.num_nodes = 3
    assert config == TorchTuneConfig(num_nodes=3, resources_per_node={"gpu": 8})
    assert (TorchTuneConfig().num_nodes, TorchTuneConfig().resources_per_node) == (None, None)


def test_an_adapter_on_several_nodes_is_refused() -> None:
    TorchTuneConfig(num_nodes=2).validate()
    TorchTuneConfig(num_nodes=1, peft_config=LoraConfig()).validate()
    with pytest.raises(InvalidConfig, match="adapters on one node") as caught:
        TorchTuneConfig(num_nodes=2, peft_config=LoraConfig()).validate()
    assert caught.value.field == "num_nodes"


def test_a_format_that_is_no_format_is_refused() -> None:
    config = TorchTuneConfig(
        dataset_preprocess_config=TorchTuneInstructDataset(source="parquet")  # type: ignore[arg-type]
    )
    with pytest.raises(InvalidConfig, match=r"DataFormat\.PARQUET"):
        config.to_args()


def test_a_job_of_the_api_is_refused() -> None:
    sizing = Sizing(examples=1, model_bytes=1)
    for refused in (
        lambda: TorchTuneConfig.from_openai(
            method="supervised", hyperparameters={}, seed=1, sizing=sizing, extra={}
        ),
        lambda: TorchTuneConfig.from_document({}, 1),
        TorchTuneConfig().to_document,
    ):
        with pytest.raises(InvalidConfig, match="'torchtune' makes TrainJobs") as caught:
            refused()
        assert caught.value.field == "windlass.backend"
