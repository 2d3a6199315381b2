"""The chain of an organization's audit events: hashes, their walk, and signed checkpoints.

The service that appends, the command that verifies a file, and an auditor share these rules.
All but `checkpoints` needs the standard library alone, as a client has it. May import nothing else
of ours.
"""
