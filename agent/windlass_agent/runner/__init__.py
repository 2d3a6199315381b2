"""The runner of a job: a light parent process that drives a trainer.

It asks its agent what to do, fetches the inputs, turns the data into a trainer's rows,
starts the backend's command as a child, reports what the child says, and uploads what the
child saves. The parent never imports torch; its children do (`trainers`, `export`).
"""
