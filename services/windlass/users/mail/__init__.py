"""Mail to people: texts, and rows of what is to be sent.

May import the tables of users, and the kernel.
"""
