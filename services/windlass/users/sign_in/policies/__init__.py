"""Policies of organizations for sign-ins, and explanations of access.

May import the sessions and tables of sign-in, their strength, and the scope and tables of users.
"""
