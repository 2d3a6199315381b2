"""The agent, as a process of its own or inside the server"""

from prometheus_client import Counter, Gauge, Histogram

WORKLOADS = Gauge(
    "windlass_agent_workloads",
    "Workloads by kind (`job`, `engine`, `guest`, `other`) and phase.",
    ["kind", "phase"],
)
SLOTS = Gauge(
    "windlass_agent_slots",
    "Slots of a machine by kind (`job`, `engine`) and state (`used`, `free`).",
    ["kind", "state"],
)
SILENCE_SECONDS = Gauge(
    "windlass_agent_silence_seconds", "Time since the control plane answered a heartbeat."
)
HEARTBEAT_SECONDS = Histogram(
    "windlass_agent_heartbeat_seconds",
    "Time until the control plane answers a heartbeat.",
    buckets=(0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
CALL_FAILURES = Counter(
    "windlass_agent_call_failures_total",
    "Calls to the control plane that failed (`watch`, `heartbeat`, `report`, `tunnel`).",
    ["method"],
)
TUNNEL_CONNECTIONS = Gauge(
    "windlass_agent_tunnel_connections", "Connections through the tunnel that are open now."
)
ENGINE_REQUESTS = Gauge(
    "windlass_engine_requests",
    "Requests in an engine by state (`running`, `waiting`).",
    ["engine", "kind", "model", "project", "state"],
)
ENGINE_CACHE = Gauge(
    "windlass_engine_cache_used_ratio",
    "Part of an engine's room for keys and values that is in use; 0 where it does not say.",
    ["engine", "kind", "model", "project"],
)
ENGINE_TOKENS = Counter(
    "windlass_engine_tokens_total",
    "Tokens of prompts (`prompt`), those of them known from before (`cached`), and of answers "
    "(`generated`) since an engine's start.",
    ["engine", "kind", "model", "project", "what"],
)
PICKS = Counter(
    "windlass_agent_picks_total",
    "Requests with a choice of replicas and a picker, by outcome: sent to another replica "
    "(`moved`), or to the gateway's, which the picker named too (`kept`), or because it refused "
    "(`refused`), named none that may answer (`unfit`), was late (`timeout`), broke (`failed`), "
    "named one that is out of reach (`unreachable`), has too much to do (`busy`), failed just "
    "now (`resting`), or was not shown the body (`unread`).",
    ["outcome"],
)
PICK_SECONDS = Histogram(
    "windlass_agent_pick_seconds",
    "Time until a picker names a replica.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
)
