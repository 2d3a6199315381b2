"""Identity providers: issuers that people sign in by.

May import the domain and tables of sign-in, the groups, roles and keys of users.
"""
