"""Stand-ins for servers that cannot run here, or must misbehave on demand."""
