"""Owns how models are served: the requests that set and show it, and its rows.

It imports the contract, the kernel, and of inference its domain, rows and observed state.
"""
