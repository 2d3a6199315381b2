"""Routes beside OpenAI's of roles: previews of their changes, and requests for them.

May import what the rest of `admin` may.
"""
