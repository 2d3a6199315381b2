{{- define "runtimes.labels" -}}
app.kubernetes.io/name: windlass-runtimes
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* Takes the values of an image and the chart's version. */}}
{{- define "runtimes.image" -}}
{{- $image := index . 0 -}}
{{- if $image.digest -}}
{{ printf "%s@%s" $image.repository $image.digest }}
{{- else -}}
{{ printf "%s:%s" $image.repository ($image.tag | default (index . 1)) }}
{{- end -}}
{{- end }}

{{- define "runtimes.podSecurity" -}}
runAsNonRoot: true
{{- with .Values.runAsUser }}
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "runtimes.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end }}

{{- define "admission.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}-admission
{{- end }}

{{- define "admission.selector" -}}
app.kubernetes.io/name: windlass-runtimes
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: admission
{{- end }}

{{- define "admission.labels" -}}
{{ include "runtimes.labels" . }}
app.kubernetes.io/component: admission
{{- end }}
