"""Fine-tuning jobs: validation, placement, attempts, events, checkpoints, and the model at the end.

Owns the tables jobs_*; serves JobsService (tenants), JobsAgentService (what
agents relay for their runners) and JobsInternalService.

May import the contract, the kernel, backends, graders, datasets, `jobs_api` and
`workload_statuses`; never another service.
"""
