"""Labels and annotations of our objects: whose they are, and which Kueue reads."""

PREFIX = "windlass.dev/"
KUEUE_PREFIX = "kueue.x-k8s.io/"
MANAGER_KEY = "app.kubernetes.io/managed-by"
JOB = PREFIX + "job"
ATTEMPT = PREFIX + "attempt"
PROJECT = PREFIX + "project"
WORKLOAD = PREFIX + "workload"
CLUSTER = PREFIX + "cluster"
KIND = PREFIX + "kind"
# Kinds: ours, and what was applied to another cluster.
JOB_KIND, GUEST = "job", "guest"
GENERATION = PREFIX + "generation"
MANAGED_BY = {MANAGER_KEY: "windlass"}
QUEUE = KUEUE_PREFIX + "queue-name"
PRIORITY_CLASS = KUEUE_PREFIX + "priority-class"
# Whose `managedBy` hands an object to federation; also the finalizer of such an object.
FEDERATION = PREFIX + "federation"
