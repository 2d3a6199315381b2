"""What a cluster shows of attempts: watched, trimmed to a snapshot, and diagnosed.

It imports the settings, the API and Kueue; never `render`, nor a driver.
"""
