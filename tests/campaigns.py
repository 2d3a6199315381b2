"""Files whose tests are left to `make test-all`, and what of each runs every time.

Most take half a minute or more of a worker, and each rarely finds what no other test does.
"""

CAMPAIGNS = {
    "cluster/access/test_network.py": "unit/agent/namespaces/test_network.py renders the policies",
    "cluster/engines/test_groups.py": "groups are rendered, and one serves in test_engine_pods.py",
    "cluster/federation/test_federation.py": "integration/federation",
    "cluster/tuning/test_adapters.py": "contract/tuning/full_parameters/test_elsewhere.py",
    "cluster/tuning/test_shared_leases.py": "integration/tuning/seats/test_leased_trainers.py",
    "e2e/test_sealed_project.py": "contract/sealing, and external keys in integration/tenancy",
    "e2e/test_two_machines.py": "agents of clusters are on machines of their own too",
    "faults/test_killed_agents.py": "faults/kill_points kills agents at named points",
    "faults/test_killed_jobs.py": "faults/kill_points kills jobs at named points",
    "faults/test_many_agents.py": "faults/kill_points kills agents at named points",
    "faults/test_partition.py": "faults/tunnel cuts connections",
    "faults/serving/test_planned_stops.py": "engines drain in integration/inference",
    "integration/core/test_embedded_postgres.py": "every server of every test starts one",
    "integration/how_to/test_continue_training.py": "integration/runner/test_continuing.py",
    "integration/how_to/test_evaluate_a_model.py": "integration/cli/test_job_evaluation.py",
    "integration/how_to/test_exports.py": "integration/exporting",
    "integration/how_to/test_scores.py": "integration/cli/test_job_evaluation.py",
    "integration/how_to/test_train_on_several.py": "contract/test_ranks.py",
    "integration/how_to/test_training_methods.py": "integration/runner/test_methods.py",
    "integration/inference/test_adapter_churn.py": "adapters come and go in engine_kinds",
    "integration/inference/replicas/test_needs_of_replicas.py": "unit/inference/planning",
    "integration/inference/replicas/test_scale_a_model.py": "test_scaling.py beside it",
    "integration/plugin/test_guards_and_shadow.py": "a guard trips in test_train_a_served_model.py",
    "integration/plugin/test_restarted_engine.py": "unit/plugin/api/test_job_files.py",
    "integration/plugin/test_resumed_training.py": "unit/plugin/api/test_job_files.py",
    "integration/runner/test_ranks.py": "contract/test_ranks.py",
    "integration/runner/test_rewards.py": "integration/how_to/test_train_with_rewards.py",
    "integration/runner/test_spare_trainers.py": "integration/agent/test_spares.py",
    "integration/runner/test_tracking.py": "integration/how_to/test_track_experiments.py",
    "integration/torchtune/test_ranks.py": "torchtune/test_jobs.py trains with one process",
    "integration/torchtune/test_torchtune.py": "torchtune/test_jobs.py trains with one process",
    "integration/tuning/publishing/test_media.py": "test_followed.py, and contract/weights",
}
