from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from serve_app.cli.doctor.check import Check, good, is_private_host, warn

NAME = "analysis"
SECONDS = 5.0
BY_RULE = "Until it is fixed, calls are analyzed by rules."


def endpoint(settings: Any) -> Iterator[Check]:
    """Check that the endpoint responds and lists the model; never bad, since rules replace the model. Sends no call."""
    options = settings.analysis
    if options.engine != "llm":
        yield good(NAME, f"{options.engine}, on this machine")
        return
    yield _listed(options)
    parts = urlsplit(options.base_url)
    if parts.scheme == "http" and not is_private_host(parts.hostname or ""):
        yield warn(NAME, f"connections to {parts.hostname} are not encrypted", "They carry transcripts: use https.")


def _listed(options: Any) -> Check:
    import httpx

    from pipeline.net.endpoint import bearer, below

    host = urlsplit(options.base_url).hostname
    key = options.api_key
    try:
        reply = httpx.get(below(options.base_url, "/models"), headers=bearer(key), timeout=SECONDS)
    except httpx.HTTPError as error:
        problem = f"the language model's endpoint {host} does not respond ({type(error).__name__})"
        return warn(NAME, problem, f"Start it, or fix SWITCHBOARD_ANALYSIS__BASE_URL. {BY_RULE}")
    if reply.status_code in (401, 403):
        whose = "this key" if key else "no key"
        problem = f"the language model's endpoint {host} responds {reply.status_code} to {whose}"
        return warn(NAME, problem, f"Set SWITCHBOARD_ANALYSIS__API_KEY. {BY_RULE}")
    if reply.status_code != 200:
        problem = f"{host} responds {reply.status_code} to a request for its models"
        return warn(NAME, problem, "Not every endpoint lists them; is SWITCHBOARD_ANALYSIS__BASE_URL right?")
    names = _names(reply)
    if options.model in names:
        return good(NAME, f"llm {options.model} at {host}")
    shown = ", ".join(names[:5]) or "none"
    problem = f"{host} does not list the model {options.model} (listed: {shown})"
    return warn(NAME, problem, f"Set SWITCHBOARD_ANALYSIS__MODEL to one of its names. {BY_RULE}")


def _names(reply: Any) -> list[str]:
    try:
        return [str(model["id"]) for model in reply.json()["data"]]
    except (ValueError, KeyError, TypeError):
        return []
