"""Workloads as local processes: bounded slots, a process group each, adoption after a crash."""
