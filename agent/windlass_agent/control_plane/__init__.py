"""The way to the control plane: its calls, the credential, and the lease that silence ends.

It imports the contract and the kernel alone, and no other package of the agent.
"""
