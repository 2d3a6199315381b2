"""Flags that an operator gives vLLM or SGLang beside those that Windlass writes.

Of vLLM's (https://docs.vllm.ai) those that are ours or unsafe are refused, of SGLang's
(https://docs.sglang.ai), of which there are five hundred, all but some.
"""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

# Within a name there is a dot only before a value: vLLM would take the next flag for that.
_FLAG = re.compile(r"--(?:no-)?(?P<name>[a-z][a-z0-9_-]*)(?:(?:\.[\w.-]+)?=[^\0\n]*)?")
# Flags that Windlass writes: by the model, by its serving, or so that its gateway and keeper work.
_OURS = """
    api-server-count chat-template disable-fastapi-docs disable-log-stats
    disable-uvicorn-access-log dtype enable-auto-tool-choice enable-chunked-prefill
    enable-expert-parallel enable-lora enable-prefix-caching enable-prompt-tokens-details
    enable-scale-out enable-server-load-tracking
    enforce-eager generation-config gpu-memory-utilization host kv-cache-dtype kv-cache-memory-bytes
    kv-offloading-size master-addr master-port max-cpu-loras max-lora-rank max-loras
    max-logprobs max-model-len max-num-batched-tokens max-num-queued-reqs max-num-seqs model nnodes
    node-rank
    pipeline-parallel-size pooler-config port reasoning-parser runner scheduling-policy
    served-model-name shutdown-timeout spec-method spec-model spec-tokens
    structured-outputs-config tensor-parallel-size tool-call-parser uds
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
    scheduler-cls speculative-config ssl-certfile ssl-keyfile tokenizer tokens-only
    tool-parser-plugin tool-server trust-remote-code trust-request-chat-template
    trust-request-mm-kwargs weight-transfer-config worker-cls worker-extension-cls
"""
# SGLang's that are about speed, memory and devices.
_SGLANG = """
    attention-backend bf16-gemm-backend constrained-json-disable-any-whitespace cpu-offload-gb
    cuda-graph-bs-decode cuda-graph-max-bs-decode cuda-graph-max-bs-prefill
    decode-attention-backend disable-chunked-prefix-cache disable-cuda-graph-padding
    disable-custom-all-reduce disable-flashinfer-autotune disable-hybrid-swa-memory
    disable-overlap-schedule disable-shared-experts-fusion enable-deterministic-inference
    enable-dynamic-chunking enable-eplb enable-fused-qk-norm-rope enable-hierarchical-cache
    enable-lora-overlap-loading enable-mixed-chunk enable-mscclpp enable-nccl-nvls
    enable-p2p-check enable-symm-mem enable-tf32-matmul enable-torch-compile enable-torch-symm-mem
    enable-two-batch-overlap ep-num-redundant-experts flashinfer-allreduce-fusion-backend
    fp4-gemm-backend fp8-gemm-backend gpu-id-step hicache-io-backend hicache-mem-layout
    hicache-ratio hicache-size hicache-write-policy linear-attn-backend lora-backend
    lora-eviction-policy lora-use-virtual-experts mamba-backend mamba-full-memory-ratio
    mamba-ssm-dtype max-lora-chunk-size max-mamba-cache-size max-total-tokens model-impl
    moe-a2a-backend moe-dense-tp-size moe-runner-backend num-continuous-decode-steps numa-node
    page-size pp-size pre-warm-nccl prefill-attention-backend prefill-max-requests quantization
    radix-eviction-policy random-seed sampling-backend schedule-conservativeness stream-interval
    swa-full-tokens-ratio tokenizer-mode torch-compile-max-bs triton-attention-num-kv-splits
    watchdog-timeout weight-loader-disable-mmap weight-loader-prefetch-checkpoints
"""
# Flags by which weights take less of the GPUs' memory than their files say.
_LIGHTENING = ("cpu-offload-gb", "quantization")
OURS, UNSAFE = frozenset(_OURS.split()), frozenset(_UNSAFE.split())
SGLANG_TAKEN = frozenset(_SGLANG.split())


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


def lightens(flag: str) -> bool:
    """Returns True for a flag by which an engine's weights take less of its GPUs than others'."""
    found = _FLAG.fullmatch(flag)
    name = found["name"].replace("_", "-") if found else ""
    return bool(name) and any(one.startswith(name) for one in _LIGHTENING)


def check_sglang_flag(flag: str) -> str:
    """Returns a flag; raises ValueError for what is none, or none of those that are taken."""
    found = _FLAG.fullmatch(flag)
    if found is None or "." in flag.partition("=")[0]:
        raise ValueError(f"{flag[:80]!r} is no flag of the form --name or --name=value")
    # A part of a name counts for the whole there, and is nothing here.
    if flag.removeprefix("--").removeprefix("no-").partition("=")[0] not in SGLANG_TAKEN:
        raise ValueError(
            f"--{found['name']} is not among those of docs/reference/engine-arguments.md"
        )
    return flag


EngineFlag = Annotated[str, AfterValidator(check_flag)]
EngineFlags = Annotated[tuple[EngineFlag, ...], Field(max_length=32)]
SglangFlags = Annotated[
    tuple[Annotated[str, AfterValidator(check_sglang_flag)], ...], Field(max_length=32)
]
