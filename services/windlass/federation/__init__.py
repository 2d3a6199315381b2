"""Federation: Jobs and JobSets that are applied to one cluster and run in another.

May import the contract, the kernel, `windlass.kubernetes`, `workload_phases` and
`workload_statuses`; never another service.
"""
