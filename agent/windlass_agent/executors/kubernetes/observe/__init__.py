"""Observation of attempts on a cluster: watched, trimmed to a snapshot, and diagnosed.

It imports the settings, the API and Kueue; never `render`, nor a driver.
"""
