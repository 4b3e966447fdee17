import contextlib
import hashlib
import json
from typing import Any


def identity_of(engine: Any) -> str:
    """Return a digest of an engine: its name, options, checkpoint by content, package, and aligner, if it has them.

    It is computed once per engine; a checkpoint of gigabytes takes seconds.
    """
    cached: str | None = getattr(engine, "_identity", None)
    if cached is not None:
        return cached
    options, checkpoint = getattr(engine, "options", None), getattr(engine, "checkpoint", None)
    values = options.model_dump(mode="json") if options is not None else None
    aligner = getattr(engine, "aligner", None)
    more = () if aligner is None else (identity_of(aligner),)
    more += tuple(filter(None, [getattr(engine, "package", None)]))
    identity = digest_of(type(engine).__name__, engine.name, values, checkpoint.digest() if checkpoint else "", *more)
    with contextlib.suppress(AttributeError):  # a class with slots
        engine._identity = identity
    return identity


def digest_of(*facts: Any) -> str:
    """Return a digest of facts that JSON can represent: 32 hexadecimal digits."""
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
