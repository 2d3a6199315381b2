"""Windlass: a multi-tenant LLM platform (the control plane, the SDK and the CLI).

`.importlinter` says which package may import which: a service imports the contract, the kernel and
what services share, never another service. Nothing but what runs on its machine imports the agent.
"""
