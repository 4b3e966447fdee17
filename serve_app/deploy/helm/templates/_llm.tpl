{{/* Other labels than Switchboard's pods have: its NetworkPolicy and its budgets are not for these. */}}
{{- define "switchboard.llm.labels" -}}
app.kubernetes.io/part-of: switchboard-llm
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* llm.yaml with `llm.config` over its model. */}}
{{- define "switchboard.llm.serve" -}}
{{- $serve := .Files.Get "files/llm.yaml" | fromYaml -}}
{{- range $serve.applications -}}
{{- $_ := mergeOverwrite (first .args.llm_configs) (deepCopy $.Values.llm.config) -}}
{{- end -}}
{{ toYaml $serve }}
{{- end -}}

{{/* The settings with which Switchboard asks it. */}}
{{- define "switchboard.llm.settings" -}}
{{- $application := first (include "switchboard.llm.serve" . | fromYaml).applications -}}
ANALYSIS__ENGINE: llm
ANALYSIS__BASE_URL: http://{{ .Release.Name }}-llm-serve-svc:8000/v1
ANALYSIS__MODEL: {{ (first $application.args.llm_configs).model_loading_config.model_id | quote }}
{{- end -}}

{{/* A pod of the language model; `context`, `group` and `component` as for switchboard.pod. */}}
{{- define "switchboard.llm.pod" -}}
{{- $llm := .context.Values.llm -}}
{{- $gpu := int (.group.gpu | default 0) -}}
metadata:
  labels:
    {{- include "switchboard.llm.labels" .context | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  {{- with .context.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- if eq .component "worker" }}
  automountServiceAccountToken: false
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 1000
    fsGroup: 1000
    seccompProfile: {type: RuntimeDefault}
  {{- with .group.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .group.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  volumes:
    - {name: scaling, configMap: {name: {{ .context.Release.Name }}-llm}}
    - name: models
      {{- if $llm.claim }}
      persistentVolumeClaim: {claimName: {{ $llm.claim }}}
      {{- else }}
      emptyDir: {}
      {{- end }}
  containers:
    - name: ray-{{ .component }}
      image: {{ $llm.image | quote }}
      env:
        - {name: HF_HOME, value: /models}
        {{- range splitList "\n" (.context.Files.Get "files/llm.env") }}
        {{- if and (regexMatch "^[A-Za-z_]+=" .) (not (or (hasPrefix "RAY_AUTH_" .) (hasPrefix "PYTHONPATH" .))) }}
        {{- $parts := regexSplit "=" . 2 }}
        - {name: {{ first $parts }}, value: {{ last $parts | quote }}}
        {{- end }}
        {{- end }}
        - {name: PYTHONPATH, value: /etc/switchboard-llm}
        {{- with $llm.prometheus }}
        - {name: RAY_PROMETHEUS_HOST, value: {{ . | quote }}}
        {{- end }}
      {{- with $llm.secrets }}
      envFrom:
        {{- range . }}
        - secretRef: {name: {{ . }}}
        {{- end }}
      {{- end }}
      securityContext:
        allowPrivilegeEscalation: false
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: models, mountPath: /models}
        - {name: scaling, mountPath: /etc/switchboard-llm, readOnly: true}
      ports:
        {{- if eq .component "head" }}
        - {name: gcs-server, containerPort: 6379}
        - {name: dashboard, containerPort: 8265}
        - {name: client, containerPort: 10001}
        {{- end }}
        - {name: serve, containerPort: 8000}
        - {name: metrics, containerPort: 8080}
      resources:
        requests: {cpu: {{ .group.cpu }}, memory: {{ .group.memory }}}
        limits:
          cpu: {{ .group.cpu }}
          memory: {{ .group.memory }}
          {{- if $gpu }}
          nvidia.com/gpu: {{ $gpu }}
          {{- end }}
{{- end -}}
