"""Reporting of a running job: events sent to the agent, metrics and the model card.

It imports `protocol` alone.
"""
