"""Clusters: agents and their credentials, liveness and capacity, and what each cluster should run.

Owns the tables `clusters_*`. A workload belongs to the service that put it; this
one only carries the desired state down to the agent and the status back up.
"""
