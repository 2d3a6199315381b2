"""Tables of certificates, and what credentials demand of clients by them.

May import the database of the kernel.
"""
