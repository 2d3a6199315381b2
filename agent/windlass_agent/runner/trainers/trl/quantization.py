"""Check that 4-bit quantization is available, before a base model is loaded."""

from importlib.util import find_spec

from windlass_agent.runner.protocol.outcome import Failure


def check_quantization(*, in_4bit: bool) -> None:
    """Raises Failure `quantization_not_installed` where QLoRA is asked for and cannot be."""
    if in_4bit and find_spec("bitsandbytes") is None:
        raise Failure(
            "quantization_not_installed",
            "The runner has no bitsandbytes, which loads a model in 4 bits: install "
            "windlass[qlora] where jobs run.",
            param="windlass.config.load_in_4bit",
        )
