"""People and groups of an organization that its directory provisions by SCIM.

May import the contract, the kernel, and of users its records, members, groups and keys' ends.
"""
