"""Entry point of `vllm.general_plugins`, which runs in each process of an engine."""

import logging

from windlass_vllm import settings
from windlass_vllm.engine import packing, versions

_log = logging.getLogger("vllm.windlass_vllm")


def register() -> None:
    """Prepares this process for training; changes nothing unless named, or in unknown versions."""
    if not settings.is_named():
        return
    if not versions.is_tested(found := versions.installed()):
        _log.warning("vLLM %s was not tested for training; it is left untouched", found)
        return
    if not packing.keep_weights():
        _log.warning("vLLM %s packs weights in another way; it is left untouched", found)
