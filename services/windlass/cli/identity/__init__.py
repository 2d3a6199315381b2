"""Commands on who comes in: issuers, invites, directories and workloads.

May import the framework of commands and the client.
"""
