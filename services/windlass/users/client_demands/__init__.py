"""Tables of what organizations demand of clients, and what credentials are told of it.

May import the database of the kernel, and the tables of users.
"""
