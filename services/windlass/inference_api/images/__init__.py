"""Images of chats: their parts, their bounds, and what their first bytes say.

May import the kernel alone.
"""
