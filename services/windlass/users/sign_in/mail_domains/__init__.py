"""Mail domains that organizations prove to be theirs, and whose people come in by them.

May import the domain, the identities and the tables of sign-in, and of users.
"""
