"""Sessions, runs, the log of operations, checkpoints and samplers; what trains is behind a port.

Owns the tables `tuning_*`; serves TuningService.

May import the contract, the kernel and `windlass.tuning_api`; never another service.
"""
