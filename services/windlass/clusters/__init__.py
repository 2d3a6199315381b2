"""Clusters: their agents and credentials, what they have, who may use them, what each should run.

Owns the tables `clusters_*`. A workload belongs to the service that put it; this one only
carries the desired state down to the agent and the status back up. Assignments of projects and
the quota go down beside workloads, as one spec per cluster; the inventory comes up.

May import the contract, the kernel, `windlass.kubernetes`, `policy` and `workload_phases`; never
another service.
"""
