"""Workloads as local processes: bounded slots, a process group each, adoption after a crash.

It may import `engines`, `machine` and the modules of `executors`; never `kubernetes`, nor the API
of a cluster.
"""
