"""Routes that lead to engines: the only ones, whatever an engine has beside them."""

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
EMBEDDINGS = "/v1/embeddings"
SCORE = "/v1/score"
RERANK = "/v1/rerank"
# What engines may offer beside: no word of an agent adds a path.
ENGINE_PATHS = frozenset({"/tokenize", RERANK})
# Of vLLM's: ends requests, which are answered with what they have. The gateway's alone.
ABORT = "/inference/v1/abort_requests"
# Of vLLM's: token ids in, token ids out. For whoever speaks to the engine itself.
GENERATE = "/inference/v1/generate"
# Of a machine's door: whether the workload that the host names serves there.
SERVES = "/serves"
ENGINE_ROUTES = ENGINE_PATHS | {CHAT, COMPLETIONS, EMBEDDINGS, SCORE}
# Of a request: the version of the weights that it demands; of its answer: the one that it is of.
WEIGHT_VERSION = "x-windlass-weight-version"
# Of the answer of an engine that learns: the first and the last optimizer step that it saw.
STEPS = "x-windlass-steps"
# Of the answer to a request with `store: true`: how many of its choices were kept.
KEPT = "x-windlass-kept"
