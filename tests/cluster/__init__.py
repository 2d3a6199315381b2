"""Real Kubernetes clusters for tests: programs from Go modules, one network namespace each."""
