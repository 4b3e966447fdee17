from importlib.metadata import version
from typing import Any

REF = "#/components/schemas/{model}"


def document(
    title: str, description: str, url: str, key: str, paths: dict[str, Any], components: dict[str, Any]
) -> dict[str, Any]:
    base_url = {"default": "http://127.0.0.1:8000", "description": "host and path prefix"}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": version("switchboard-calls"),
            "description": description,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": url, "variables": {"base_url": base_url}}],
        "security": [{"apiKey": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"apiKey": {"type": "http", "scheme": "bearer", "description": key}},
            **components,
        },
    }


def header(description: str = "") -> dict[str, Any]:
    return {"schema": {"type": "string"}, **({"description": description} if description else {})}


def rates() -> dict[str, Any]:
    """Return the headers of the IETF draft "RateLimit header fields for HTTP"."""
    return {
        "RateLimit-Policy": header("Quota `q` of the key in a window of `w` seconds."),
        "RateLimit": header(
            "Remaining requests `r` of the key, and the seconds `t` until its full quota is available or, if "
            "`r` is 0, until the next request."
        ),
    }
