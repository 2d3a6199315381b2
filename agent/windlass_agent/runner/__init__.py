"""The runner of a job: a light parent process that drives a trainer.

It asks its agent what to do, fetches the inputs, turns the data into a trainer's rows,
starts the backend's command as a child, reports what the child says, and uploads what the
child saves.

It imports the contract, the kernel, the packages shared with services, and of the agent `machine`,
`memory`, `clock` and `download`. The parent never imports torch; its children (`trainers`,
`export`, `evaluation`) do.
"""
