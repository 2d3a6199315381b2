"""Media of versions: a folder that machines share, and memory that processes of one share.

May import nothing else of Windlass than its own package. The object store is in
`windlass.weight_objects`, which knows the kernel.
"""
