"""Check of the analysis: whether the language model's endpoint answers and knows the model. Sends no call."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from serve_app.cli.doctor.check import Check, good, inside, warn

NAME = "analysis"
SECONDS = 5.0
BY_RULE = "Until it is fixed, calls are analyzed by rules."


def endpoint(settings: Any) -> Iterator[Check]:
    """Never an obstacle: without the model the built-in engine does the work."""
    options = settings.analysis
    if options.engine != "llm":
        yield good(NAME, f"{options.engine}, on this machine")
        return
    yield _listed(options)
    parts = urlsplit(options.base_url)
    if parts.scheme == "http" and not inside(parts.hostname or ""):
        yield warn(NAME, f"{parts.hostname} is spoken to without encryption", "Transcripts go there: use https.")


def _listed(options: Any) -> Check:
    """Ask for the list of models, with the key."""
    import httpx

    from pipeline.net.endpoint import bearer, below

    host = urlsplit(options.base_url).hostname
    key = options.api_key
    try:
        reply = httpx.get(below(options.base_url, "/models"), headers=bearer(key), timeout=SECONDS)
    except httpx.HTTPError as error:
        told = f"the language model's endpoint {host} does not answer ({type(error).__name__})"
        return warn(NAME, told, f"Start it, or fix SWITCHBOARD_ANALYSIS__BASE_URL. {BY_RULE}")
    if reply.status_code in (401, 403):
        whose = "this key" if key else "no key"
        told = f"the language model's endpoint {host} answers {reply.status_code} to {whose}"
        return warn(NAME, told, f"Set SWITCHBOARD_ANALYSIS__API_KEY. {BY_RULE}")
    if reply.status_code != 200:
        told = f"{host} answers {reply.status_code} when asked for its models"
        return warn(NAME, told, "Not every endpoint lists them; is SWITCHBOARD_ANALYSIS__BASE_URL right?")
    names = _names(reply)
    if options.model in names:
        return good(NAME, f"llm {options.model} at {host}")
    shown = ", ".join(names[:5]) or "none"
    told = f"{host} does not list the model {options.model} (listed: {shown})"
    return warn(NAME, told, f"Set SWITCHBOARD_ANALYSIS__MODEL to one of its names. {BY_RULE}")


def _names(reply: Any) -> list[str]:
    try:
        return [str(one["id"]) for one in reply.json()["data"]]
    except (ValueError, KeyError, TypeError):
        return []
