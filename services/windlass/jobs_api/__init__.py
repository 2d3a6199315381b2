"""The body that creates a fine-tuning job: its type, its bounds, and how it is refused.

The gateway and the jobs service decode the same bytes by this one type, of which /openapi.json is
made as well.

May import backends, datasets and the kernel; no service.
"""
