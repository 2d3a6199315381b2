{{/* A step before the training. Takes: the root, the name, what is fetched. */}}
{{- define "runtimes.initializer" -}}
{{- $root := index . 0 }}{{ $name := index . 1 -}}
- name: {{ $name }}
  template:
    metadata:
      labels:
        trainer.kubeflow.org/trainjob-ancestor-step: {{ $name }}
    spec:
      template:
        spec:
          securityContext: {{- include "runtimes.podSecurity" $root | nindent 12 }}
          containers:
            - name: {{ $name }}
              image: {{ printf "%s/%s:%s" $root.Values.initializers.registry $name $root.Values.initializers.tag }}
              env:
                - {name: STORAGE_URI, value: {{ index . 2 | quote }}}
                # The user has no home.
                - {name: HOME, value: /tmp}
              securityContext: {{- include "runtimes.containerSecurity" $root | nindent 16 }}
              volumeMounts:
                - {name: initializer, mountPath: /workspace}
{{- end }}

{{/* Takes: the root, the framework, what models.yaml says of the model, the values of both. */}}
{{- define "runtimes.runtime" -}}
{{- $root := index . 0 }}{{ $framework := index . 1 }}{{ $model := index . 2 }}
{{- $values := index . 3 }}{{ $own := index . 4 -}}
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata:
  name: {{ printf "%s-%s" $values.namePrefix $model.name }}
  labels:
    {{- include "runtimes.labels" $root | nindent 4 }}
    trainer.kubeflow.org/framework: {{ $framework }}
  annotations:
    {{- if eq $framework "trl" }}
    windlass.dev/trl-version: 1.16.0
    {{- else }}
    windlass.dev/torchtune-model: {{ $model.torchtune }}
    {{- end }}
spec:
  mlPolicy:
    numNodes: 1
    torch: {}
  template:
    spec:
      volumeClaimPolicies:
        - templates:
            - metadata:
                name: initializer
              spec:
                accessModes: {{- toYaml $root.Values.workspace.accessModes | nindent 18 }}
                {{- with $root.Values.workspace.storageClassName }}
                storageClassName: {{ . }}
                {{- end }}
                resources:
                  requests:
                    storage: {{ $root.Values.workspace.size }}
          # JobSet's default. Unsaid, Trainer would take it back, which is refused, and a
          # TrainJob that was suspended would never be resumed.
          retentionPolicy: {whenDeleted: Delete}
      replicatedJobs:
        {{- include "runtimes.initializer" (list $root "dataset-initializer" $root.Values.initializers.dataset) | nindent 8 }}
        {{- include "runtimes.initializer" (list $root "model-initializer" $model.source) | nindent 8 }}
        - name: node
          dependsOn:
            - {name: dataset-initializer, status: Complete}
            - {name: model-initializer, status: Complete}
          template:
            metadata:
              labels:
                trainer.kubeflow.org/trainjob-ancestor-step: trainer
            spec:
              template:
                spec:
                  securityContext: {{- include "runtimes.podSecurity" $root | nindent 20 }}
                  containers:
                    - name: node
                      image: {{ include "runtimes.image" (list $values.image $root.Chart.AppVersion) }}
                      imagePullPolicy: {{ $values.image.pullPolicy }}
                      {{- include (printf "runtimes.%s" $framework) $model | nindent 22 }}
                      env:
                        - {name: HOME, value: /tmp}
                        # And no name, which torch asks for.
                        - {name: USER, value: trainer}
                        - {name: PYTHONUNBUFFERED, value: "1"}
                      resources: {{- toYaml ($own.resources | default $values.resources) | nindent 24 }}
                      securityContext: {{- include "runtimes.containerSecurity" $root | nindent 24 }}
                      volumeMounts:
                        - {name: initializer, mountPath: /workspace}
{{- end }}

{{/* Arguments of a TrainJob take the place of all of these. */}}
{{- define "runtimes.trl" -}}
command: [torchrun, -m, trl.scripts.sft]
args:
  - --model_name_or_path
  - /workspace/model
  - --dataset_name
  - /workspace/dataset
  - --output_dir
  - /workspace/output
  - --report_to
  - none
{{- end }}

{{/* For a TrainJob without a trainer; Kubeflow Trainer reads the paths from here for others. */}}
{{- define "runtimes.torchtune" -}}
command:
  - tune
  - run
  - --rdzv_endpoint=localhost:29500
  - full_finetune_distributed
  - --config
  - {{ .torchtune }}_full
  - dataset=torchtune.datasets.instruct_dataset
  - dataset.source=parquet
  - dataset.data_dir=/workspace/dataset/data
  - output_dir=/workspace/output
  {{- range .tokenizer }}
  - {{ . }}
  {{- end }}
  - checkpointer.checkpoint_dir=/workspace/model
{{- end }}
