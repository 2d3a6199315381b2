"""Inference: which engine runs where, which adapters it has, and the routes of gateways.

Owns inference_engines, inference_wants and inference_schedulers. Engines run as
workloads of clusters; names come from models, by watch.

May import the contract, the kernel, `workload_phases`, graders and the losses of `tuning_api`;
never another service.
"""
