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
# Of a machine's door: whether the workload that the host names serves there.
SERVES = "/serves"
ENGINE_ROUTES = ENGINE_PATHS | {CHAT, COMPLETIONS, EMBEDDINGS, SCORE}
