"""Fine-tuning jobs: validation, placement, attempts, events, checkpoints, and the model at the end.

Owns the tables jobs_*; serves JobsService (tenants), JobsAgentService (what
agents relay for their runners) and JobsInternalService.
"""
