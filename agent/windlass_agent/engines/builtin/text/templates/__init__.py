"""Chat templates: a tenant's Jinja, rendered in a process with little CPU time and memory.

It imports nothing of Windlass, and no torch.
"""
