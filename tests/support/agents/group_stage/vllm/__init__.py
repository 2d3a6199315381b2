"""Stands in a pod for vLLM's programs on several nodes: `tests/cluster/engines/test_groups.py`."""
