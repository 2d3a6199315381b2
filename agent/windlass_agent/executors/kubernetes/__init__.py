"""Workloads as objects of a Kubernetes cluster, admitted by Kueue."""
