{{/* The name of everything: the release's. ClusterRoles begin with it too, so that releases do not meet. */}}
{{- define "agent.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "agent.selector" -}}
app.kubernetes.io/name: windlass-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "agent.labels" -}}
{{ include "agent.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "agent.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ printf "%s@%s" .repository .digest }}
{{- else -}}
{{ printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "agent.registrationSecret" -}}
{{- .Values.registration.existingSecret | default (printf "%s-registration" (include "agent.name" .)) -}}
{{- end }}

{{- define "agent.user" -}}
{{- printf "system:serviceaccount:%s:%s" .Release.Namespace (include "agent.name" .) -}}
{{- end }}

{{- /* The claim that weights of engines lie in; empty for none. */ -}}
{{- define "agent.weights" -}}
{{- dig "engines" "weights" "claim" "" .Values.cluster -}}
{{- end }}
