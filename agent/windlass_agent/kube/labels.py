"""Labels and annotations of our objects: whose they are, and which Kueue reads."""

PREFIX = "windlass.dev/"
JOB = PREFIX + "job"
ATTEMPT = PREFIX + "attempt"
PROJECT = PREFIX + "project"
WORKLOAD = PREFIX + "workload"
CLUSTER = PREFIX + "cluster"
KIND = PREFIX + "kind"
# Kinds: ours, and what was applied to another cluster.
JOB_KIND, GUEST = "job", "guest"
GENERATION = PREFIX + "generation"
MANAGED_BY = {"app.kubernetes.io/managed-by": "windlass"}
QUEUE = "kueue.x-k8s.io/queue-name"
PRIORITY_CLASS = "kueue.x-k8s.io/priority-class"
