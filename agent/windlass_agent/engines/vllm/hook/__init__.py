"""The folder that vLLM's process has on its path; it imports `windlass_agent.engines.vllm`."""
