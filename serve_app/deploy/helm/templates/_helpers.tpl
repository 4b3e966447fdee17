{{/* Of which pods are ours; KubeRay gives them a name of its own. */}}
{{- define "switchboard.labels" -}}
app.kubernetes.io/part-of: switchboard
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Variables of the containers that are no secret: those of ray.env and node.env, then the settings. In the image a
     user's home is /home/switchboard; files of Ray lie where KubeRay expects them, and KubeRay brings the token. */}}
{{- define "switchboard.environment" -}}
{{- $variables := dict -}}
{{- range splitList "\n" (printf "%s\n%s" (.Files.Get "files/ray.env") (.Files.Get "files/node.env")) -}}
{{- if and (regexMatch "^[A-Za-z_]+=" .) (not (regexMatch "^RAY_(AUTH_|TMPDIR)" .)) -}}
{{- $parts := regexSplit "=" . 2 -}}
{{- $_ := set $variables (first $parts) (last $parts | replace "$HOME" "/home/switchboard") -}}
{{- end -}}
{{- end -}}
{{- $_ := required "settings.STORAGE: where recordings are kept, s3://my-bucket/recordings" .Values.settings.STORAGE -}}
{{- if .Values.llm.enabled -}}
{{- range $name, $value := include "switchboard.llm.settings" . | fromYaml -}}
{{- $_ := set $variables (printf "SWITCHBOARD_%s" $name) $value -}}
{{- end -}}
{{- end -}}
{{- range $name, $value := .Values.settings -}}
{{- $_ := set $variables (printf "SWITCHBOARD_%s" $name) (toString $value) -}}
{{- end -}}
{{- range $name, $value := .Values.environment -}}
{{- $_ := set $variables $name (toString $value) -}}
{{- end -}}
{{ toYaml $variables }}
{{- end -}}

{{/* serve.yaml with the bounds of `scaling` in place of its own. */}}
{{- define "switchboard.serve" -}}
{{- $serve := .Files.Get "files/serve.yaml" | fromYaml -}}
{{- $wanted := deepCopy (.Values.scaling | default dict) -}}
{{- range $application := $serve.applications -}}
{{- range $name, $bounds := $application.args.scaling -}}
{{- if hasKey $wanted $name -}}
{{- $_ := mergeOverwrite $bounds (get $wanted $name) -}}
{{- $_ := unset $wanted $name -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $wanted -}}
{{- fail (printf "scaling: serve.yaml has no %s" (keys $wanted | sortAlpha | join ", ")) -}}
{{- end -}}
{{ toYaml $serve }}
{{- end -}}

{{/* Nodes without a GPU run Intake, Api, Console and Conductor; a GPU node would stay for them. */}}
{{- define "switchboard.resources" -}}
resources: {{ "\"{\\\"service_node\\\": 1000}\"" | squote }}
{{- end -}}

{{/* What all containers of the chart have in common. */}}
{{- define "switchboard.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
envFrom:
  - configMapRef: {name: {{ .Release.Name }}-environment}
  {{- range .Values.secrets }}
  - secretRef: {name: {{ . }}}
  {{- end }}
env:
  - name: SWITCHBOARD_DATABASE_URL
    valueFrom: {secretKeyRef: {name: {{ .Values.database.secret }}, key: {{ .Values.database.key }}}}
securityContext:
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: models, mountPath: /models}
  - {name: data, mountPath: /data}
{{- end -}}

{{/* A pod of a group; `context`: the chart's, `group`: its values, `component`: head or worker, `gpu`: how many. */}}
{{- define "switchboard.pod" -}}
{{- $context := .context -}}
{{- $gpu := int (.group.gpu | default 0) -}}
metadata:
  labels:
    {{- include "switchboard.labels" $context | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
  annotations:
    checksum/environment: {{ include "switchboard.environment" $context | sha256sum }}
    {{- with $context.Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- with $context.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- /* The head's token is that of its autoscaler, which KubeRay gives the rights. */}}
  {{- if eq .component "worker" }}
  automountServiceAccountToken: {{ ne $context.Values.serviceAccount "" }}
  {{- end }}
  {{- with $context.Values.serviceAccount }}
  serviceAccountName: {{ . }}
  {{- end }}
  terminationGracePeriodSeconds: 60
  securityContext:
    runAsNonRoot: true
    runAsUser: 1000
    runAsGroup: 1000
    fsGroup: 1000
    seccompProfile: {type: RuntimeDefault}
  {{- with .group.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .group.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  volumes:
    - name: models
      {{- if $context.Values.models.claim }}
      persistentVolumeClaim: {claimName: {{ $context.Values.models.claim }}}
      {{- else }}
      emptyDir: {}
      {{- end }}
    - name: data
      emptyDir: {}
  initContainers:
    {{- if eq .component "head" }}
    - name: database
      command: [switchboard, migrate]
      {{- include "switchboard.container" $context | nindent 6 }}
    {{- else }}
    - name: node
      command: [switchboard, doctor, --node, --gpus, "{{ $gpu }}"]
      {{- if $gpu }}
      resources: {limits: {nvidia.com/gpu: {{ $gpu }}}}
      {{- end }}
      {{- include "switchboard.container" $context | nindent 6 }}
    - name: models
      command: [switchboard, checkpoints, fetch, --configured]
      {{- include "switchboard.container" $context | nindent 6 }}
    {{- end }}
  containers:
    - name: ray-{{ .component }}
      {{- include "switchboard.container" $context | nindent 6 }}
      ports:
        {{- if eq .component "head" }}
        - {name: gcs-server, containerPort: 6379}
        - {name: dashboard, containerPort: 8265}
        - {name: client, containerPort: 10001}
        {{- end }}
        - {name: serve, containerPort: 8000}
        - {name: metrics, containerPort: 8080}
      {{- if eq .component "worker" }}
      # As KubeRay's own, but that an Intake has to answer behind the proxy of this node.
      readinessProbe:
        exec:
          command:
            - bash
            - -c
            - >-
              wget --tries 1 -T 2 -q -O- http://localhost:52365/api/local_raylet_healthz | grep success
              && wget --tries 1 -T 2 -q -O- http://localhost:8000/healthz | grep alive
        initialDelaySeconds: 10
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 1
      {{- end }}
      resources:
        requests: {cpu: {{ .group.cpu }}, memory: {{ .group.memory }}}
        limits:
          cpu: {{ .group.cpu }}
          memory: {{ .group.memory }}
          {{- if $gpu }}
          nvidia.com/gpu: {{ $gpu }}
          {{- end }}
{{- end -}}
