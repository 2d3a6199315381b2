"""Flags that an operator gives vLLM beside those that Windlass writes (https://docs.vllm.ai)."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

# Within a name there is a dot only before a value: vLLM would take the next flag for that.
_FLAG = re.compile(r"--(?:no-)?(?P<name>[a-z][a-z0-9_-]*)(?:(?:\.[\w.-]+)?=[^\0\n]*)?")
# Flags that Windlass writes: by the model, by its serving, or so that its gateway and keeper work.
_OURS = """
    api-server-count chat-template disable-fastapi-docs disable-log-stats
    disable-uvicorn-access-log dtype enable-auto-tool-choice enable-chunked-prefill enable-lora
    enable-prefix-caching enable-prompt-tokens-details enable-server-load-tracking enforce-eager
    generation-config gpu-memory-utilization host kv-cache-dtype kv-cache-memory-bytes
    kv-offloading-size master-addr master-port max-cpu-loras max-lora-rank max-loras
    max-model-len max-num-batched-tokens max-num-queued-reqs max-num-seqs model nnodes node-rank
    pipeline-parallel-size pooler-config port reasoning-parser runner scheduling-policy
    served-model-name shutdown-timeout spec-method spec-tokens structured-outputs-config
    tensor-parallel-size tool-call-parser uds
"""
# Flags that let a model's folder or a request run code or read files, that write prompts to a log,
# or that go past the gateway.
_UNSAFE = """
    allowed-local-media-path allowed-media-domains allowed-origins api-key config
    data-parallel-size distributed-executor-backend ec-transfer-config enable-log-outputs
    enable-log-requests enable-mm-embeds enable-offline-docs enable-prompt-embeds
    enable-request-id-headers enable-tokenizer-info-endpoint grpc headless hf-overrides hf-token
    io-processor-plugin kv-events-config kv-transfer-config logits-processors lora-modules
    middleware model-class-overrides profiler-config reasoning-parser-plugin root-path
    scheduler-cls spec-model speculative-config ssl-certfile ssl-keyfile tokenizer tokens-only
    tool-parser-plugin tool-server trust-remote-code trust-request-chat-template
    trust-request-mm-kwargs weight-transfer-config worker-cls worker-extension-cls
"""
OURS, UNSAFE = frozenset(_OURS.split()), frozenset(_UNSAFE.split())


def check_flag(flag: str) -> str:
    """Returns a flag; raises ValueError for what is none, is written by Windlass, or is unsafe."""
    found = _FLAG.fullmatch(flag)
    if found is None:
        raise ValueError(f"{flag[:80]!r} is no flag of the form --name or --name=value")
    name = found["name"].replace("_", "-")
    # vLLM takes a part of a name for the whole.
    if any(one.startswith(name) for one in OURS):
        raise ValueError(
            f"--{name} is written by Windlass; see the engine arguments of `windlass models "
            "activate`"
        )
    if any(one.startswith(name) for one in UNSAFE):
        raise ValueError(
            f"--{name} is not taken: it could run code, read files, log prompts or pass the gateway"
        )
    return flag


EngineFlag = Annotated[str, AfterValidator(check_flag)]
EngineFlags = Annotated[tuple[EngineFlag, ...], Field(max_length=32)]
