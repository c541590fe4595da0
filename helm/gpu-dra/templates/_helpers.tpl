{{- define "gpu-dra.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimAll "-." -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimAll "-." -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimAll "-." -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Role, context: the selector of one role's pods. */ -}}
{{- define "gpu-dra.selector" -}}
app.kubernetes.io/name: {{ .context.Chart.Name }}
app.kubernetes.io/instance: {{ .context.Release.Name | quote }}
app.kubernetes.io/component: {{ .role }}
{{- end -}}

{{- define "gpu-dra.labels" -}}
{{ include "gpu-dra.selector" . }}
app.kubernetes.io/version: {{ .context.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .context.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .context.Chart.Name .context.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "gpu-dra.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}

{{- define "gpu-dra.pull" -}}
image: {{ include "gpu-dra.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end -}}

{{- define "gpu-dra.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* A container that needs nothing from the host but what it mounts. */ -}}
{{- define "gpu-dra.confined" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  capabilities:
    drop: [ALL]
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{- /* The driver root as the plugin sees it. A driver container mounts its root late, and a mount that comes later is seen only below one that
is there: hence the parent of the root is mounted. */ -}}
{{- define "gpu-dra.driverRootParent" -}}
{{- if eq (clean .Values.node.driverRoot) "/" -}}/{{- else -}}{{ dir (clean .Values.node.driverRoot) }}{{- end -}}
{{- end -}}
{{- define "gpu-dra.driverRootInside" -}}
{{- if eq (clean .Values.node.driverRoot) "/" -}}/host-root{{- else -}}/host-root/{{ base (clean .Values.node.driverRoot) }}{{- end -}}
{{- end -}}
