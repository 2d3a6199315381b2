"""Training backends: each turns a typed configuration into the command of a trainer.

May import the kernel and `windlass.kubernetes`; never a service, nor torch.
"""

from windlass.backends.backend import InvalidConfig, LLMBackend, RenderContext, Sizing
from windlass.backends.initializers import (
    HuggingFaceDatasetInitializer,
    HuggingFaceModelInitializer,
    Initializer,
    S3DatasetInitializer,
    S3ModelInitializer,
)
from windlass.backends.registry import (
    BackendError,
    get_backend,
    get_registered_backends,
    register_backend,
)
from windlass.backends.torchtune.config import (
    DataFormat,
    DataType,
    LoraConfig,
    Loss,
    TorchTuneConfig,
    TorchTuneInstructDataset,
)
from windlass.backends.train_job import BuiltinTrainer
from windlass.backends.trl.config import TRLConfig
from windlass.backends.trl.methods import (
    TRLDistillationConfig,
    TRLDPOConfig,
    TRLGRPOConfig,
    TRLKTOConfig,
    TRLORPOConfig,
    TRLPeftConfig,
    TRLRewardConfig,
    TRLRLOOConfig,
    TRLSFTConfig,
    TRLTrainerType,
)

__all__ = [
    "BackendError",
    "BuiltinTrainer",
    "DataFormat",
    "DataType",
    "HuggingFaceDatasetInitializer",
    "HuggingFaceModelInitializer",
    "Initializer",
    "InvalidConfig",
    "LLMBackend",
    "LoraConfig",
    "Loss",
    "RenderContext",
    "S3DatasetInitializer",
    "S3ModelInitializer",
    "Sizing",
    "TRLConfig",
    "TRLDPOConfig",
    "TRLDistillationConfig",
    "TRLGRPOConfig",
    "TRLKTOConfig",
    "TRLORPOConfig",
    "TRLPeftConfig",
    "TRLRLOOConfig",
    "TRLRewardConfig",
    "TRLSFTConfig",
    "TRLTrainerType",
    "TorchTuneConfig",
    "TorchTuneInstructDataset",
    "get_backend",
    "get_registered_backends",
    "register_backend",
]
