"""Ends of jobs that failed, by `error.code`; the message of each says more."""

MEANINGS = {
    # The job itself.
    "invalid_training_file": (
        "The training file cannot be trained on; correct the line that the message names."
    ),
    "invalid_validation_file": (
        "The validation file cannot be used; correct the line that the message names."
    ),
    "invalid_evaluation_file": (
        "The evaluation's file cannot be answered; correct the line that the message names."
    ),
    "invalid_configuration": (
        "The configuration does not fit the machine or the model; change the field in `param`."
    ),
    "adapter_does_not_fit": (
        "The adapter that training began with does not fit its base; begin with the base."
    ),
    "teacher_does_not_fit": (
        "The model cannot learn from this teacher; take one of the same family."
    ),
    "tokenizer_does_not_fit": (
        "The tokenizer makes tokens that the model does not have; import the model with its own."
    ),
    "model_has_no_chat_template": (
        "The model cannot render conversations; import it with a chat template."
    ),
    "model_not_supported": "The trainer cannot load the model; the message says what it lacks.",
    "unsafe_model": "The model's files are not safe to load; import it anew.",
    "loss_not_finite": "The loss is no longer a number; lower the learning rate.",
    "gradient_not_finite": "The gradients are no longer numbers; lower the learning rate.",
    "out_of_memory": (
        "The job needed more memory than it may use; ask for more, or take a smaller batch or "
        "model."
    ),
    "storage_exceeded": "The job needed more disk than it may use; keep fewer checkpoints.",
    "deadline_exceeded": "The job ran longer than the cluster allows; ask for fewer steps.",
    "grader_failed": "A grader failed on an answer; correct the grader.",
    "grader_unavailable": (
        "A grader could not be reached; see that its model is served, and try again."
    ),
    "evaluation_failed": "The evaluation could not be completed; correct its file or its grader.",
    "export_not_supported": "The trained model cannot be exported in this form; choose another.",
    "quota_exceeded": (
        "A ResourceQuota of the namespace can never hold the job; ask for less, or have it raised."
    ),
    # The way to storage and to the registry.
    "download_failed": "An input could not be downloaded; try again.",
    "upload_failed": "The model could not be stored; try again, or have room made.",
    "model_registration_failed": (
        "The model was trained, and could not be registered; the message says why."
    ),
    # The machine, the cluster and their agent.
    "deepspeed_not_installed": (
        "The runner's image has no DeepSpeed; choose fsdp2, or have it installed."
    ),
    "quantization_not_installed": (
        "The runner has no bitsandbytes; have it installed, or train without 4 bits."
    ),
    "disk_full": "The machine has no disk space left; its operator must make room.",
    "no_room": "The machine can never hold the job; ask for less.",
    "start_failed": (
        "The runner did not start; its machine's operator must look at the agent's log."
    ),
    "start_refused": "Kueue could not start the job; the message has its words.",
    "executor_error": "The agent failed while it ran the job; its log says why.",
    "process_exited": "The runner ended without a result; the message has its last words.",
    "process_killed": (
        "The runner was killed, by its machine or because another node of the job ended."
    ),
    "runner_failed": "The runner failed unexpectedly; the operator's log has more.",
    "runner_lost": "The runner was not heard of any more; its agent or machine was away.",
    "trainer_failed": "The trainer ended before its last step; the message has its error.",
    "agent_lost": "The cluster does not respond; its operator must look at the agent.",
    "cluster_unregistered": (
        "The cluster was unregistered while it ran the job; create the job again."
    ),
    "node_lost": "A node of the job went away, and no attempt was left; create the job again.",
    "evicted": (
        "The cluster took the job's pods away, and no attempt was left; create the job again."
    ),
    "geography_changed": (
        "The cluster got another geography than the project's data, and no attempt was left; "
        "create the job again."
    ),
    "preempted": (
        "More important work took the job's place, and no attempt was left; create the job again."
    ),
    "deactivated": "Somebody deactivated the job in Kueue; ask the cluster's operator.",
    "image_pull_failed": (
        "The runner's image cannot be pulled; the operator must correct its name or secret."
    ),
    "container_config": (
        "The job's container cannot be started; the operator must correct the pod template."
    ),
    "invalid_workload": "The cluster refused the job's objects; the message says what to correct.",
    "unsupported": "The cluster's agent cannot run this workload; have a newer one installed.",
    "unsupported_workload": (
        "The cluster runs no workload of this kind; have the job placed elsewhere."
    ),
    "bad_name": (
        "A name in the job's placement is no name of Kubernetes; the operator must correct it."
    ),
    "no_namespace": (
        "The project has no namespace in the cluster; an administrator must assign it."
    ),
    "no_agent_ca": "The agent has no certificate for its runners yet; try again.",
    "no_accelerator": (
        "The queue holds no quota for an accelerator that the agent knows; the operator must "
        "add it."
    ),
    "training_failed": "The runner said that training failed, and nothing more.",
    "internal_error": "Training failed for no reason that is known; the operator's log has more.",
}
