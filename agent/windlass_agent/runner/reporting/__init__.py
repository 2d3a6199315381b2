"""What people see of a running job: its events on their way to the agent, metrics, the model card.

It imports `protocol` alone.
"""
