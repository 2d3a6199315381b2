"""Sign-in of people by OpenID Connect issuers, their sessions and invites.

May import the domain, members, groups, keys and tables of users, and the kernel's outbound
connections.
"""
