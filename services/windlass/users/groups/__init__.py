"""Groups of an organization's members.

May import the domain, the scope, the roles and the tables of users, and the news of its keys.
"""
