"""Engine that trains the adapters of many tenants on one copy of a base model.

`requests` says what may be asked and refuses the rest, `scheduling` whose turn it is, `network`
holds the base weights and the adapters' matrices, `losses`, `optimizers`, `state` and `sampling`
do the work of one operation each; `engine` puts them together, and `trainer` stands behind the
tuning service's port; `full` is what one run of all parameters has in their place. None of them
knows a wire or a log; `serving` alone serves the port, in the process of `__main__`. It imports of
the agent nothing outside itself but the event loop, and of `windlass` the kernel, `modelfiles` and
`tuning_api`.
"""
