"""Windlass: a multi-tenant LLM platform (the control plane, the SDK and the CLI).

`.importlinter` says which package may import which: a service imports the contract, the kernel and
what services share, never another service. Nothing but what runs on its machine imports the agent.
"""

import os

# Before gRPC is loaded. Its handlers of forks crash some of the programs that uvloop starts while
# calls go on, and nothing here uses gRPC on both sides of a fork (grpc: doc/fork_support.md).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
