"""Routes for training on an engine's own port, and the queue and process behind them.

It imports `messages`, `run_folder`, `weights`, `losses`, `checkpoints.disk`, `engine.versions`,
`settings` and `refusal`; zmq and starlette.
"""
