from pathlib import Path

HAPROXY = Path(__file__).parents[1] / "deploy" / "haproxy.sh"  # RAY_SERVE_HAPROXY_BINARY_PATH
SOURCE_HEADER = "x-switchboard-source"  # HAProxy replaces it with the sender's address, whatever the sender wrote there
