"""Models that a project is for, which bound what each of its callers may use.

May import the domain, the restrictions and the tables of users, and the news of its keys.
"""
