"""Projects' data keys, the keys of tenants' own that wrap them, and the secrets they seal.

May import the domain, the scope, the messages and the tables of users.
"""
