"""The first owner of the platform, and another one once nobody is left who can come in.

May import what `users` may, and the modules of `users`.
"""
