"""SGLang's server: how it is started (`kind`), and its keeper, a program of ours before it.

SGLang listens at a port alone, reads a colon in a model's name as an adapter's, has its own routes
for adapters, and notices seconds late that a client has left. The keeper stands at the socket,
inside the same walls. It imports the kernel, `windlass.inference_api`, and of the agent what
engines share; `kind` imports none of the rest.
"""
