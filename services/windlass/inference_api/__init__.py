"""Bodies of the inference endpoints: their types, their checks, and how they are refused.

The built-in engine decodes them; the gateway checks them where no engine runs yet, and
/openapi.json describes them.

May import the kernel alone.
"""
