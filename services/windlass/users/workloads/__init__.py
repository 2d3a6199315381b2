"""Workload identity: issuers that an organization trusts, rules, and tokens in exchange for theirs.

May import the domain, the members, the keys and the tables of users.
"""
