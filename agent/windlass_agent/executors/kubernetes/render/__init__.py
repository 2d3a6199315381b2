"""Objects of an attempt, rendered from its workload and the settings of the cluster. Pure.

It imports the settings and what names and labels objects; never the API, nor `observe`.
"""
