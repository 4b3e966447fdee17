"""What an engine is known by: a digest of its name, its options, its checkpoint and its aligner."""

import contextlib
import hashlib
import json
from typing import Any


def identity_of(engine: Any) -> str:
    """Return a digest of an engine: its name, options, checkpoint by content, package, and aligner, where it has them.

    It is computed once for an engine; a checkpoint of gigabytes takes seconds.
    """
    known: str | None = getattr(engine, "_identity", None)
    if known is not None:
        return known
    options, checkpoint = getattr(engine, "options", None), getattr(engine, "checkpoint", None)
    told = options.model_dump(mode="json") if options is not None else None
    aligner = getattr(engine, "aligner", None)
    more = () if aligner is None else (identity_of(aligner),)
    more += tuple(filter(None, [getattr(engine, "package", None)]))
    made = digest_of(type(engine).__name__, engine.name, told, checkpoint.digest() if checkpoint else "", *more)
    with contextlib.suppress(AttributeError):  # of a class with slots
        engine._identity = made
    return made


def digest_of(*facts: Any) -> str:
    """A digest of facts that JSON can hold: 32 hexadecimal digits."""
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
