"""Words that fields of Kubernetes and Kueue take; the empty one leaves the choice to them."""

from typing import Literal

TolerationOperator = Literal["", "Equal", "Exists"]
TaintEffect = Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"]
# Of a ClusterQueue's preemption.
ReclaimWithinCohort = Literal["", "Any", "LowerPriority", "Never"]
WithinClusterQueue = Literal["", "LowerOrNewerEqualPriority", "LowerPriority", "Never"]
