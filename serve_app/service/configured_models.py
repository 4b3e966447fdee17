"""Which models the settings name: those that this machine is to have, engine by engine."""

from typing import Any

from pipeline.checkpoints import CheckpointKind
from serve_app.settings import Settings


def configured_models(settings: Settings) -> list[tuple[str, CheckpointKind]]:
    """Return for each engine in use its model's name as set and how it is found.

    An engine whose model a server has is left out, and its aligner is in; so is an aligner that no engine asks for.
    """
    from pipeline import asr, diarization, embedding
    from pipeline.asr import alignment

    recognizer = asr.engine_class(settings.asr)
    named: list[tuple[str, Any]] = [(settings.asr.model, recognizer)]
    if settings.alignment.on and aligns(recognizer):
        named.append((settings.alignment.model, alignment.aligner_class(settings.alignment)))
    named.append((settings.diarization.pipeline, diarization.engine_class(settings.diarization)))
    if settings.embedding.on:
        named.append((settings.embedding.model, embedding.engine_class(settings.embedding)))
    return [(model, engine.CHECKPOINTS) for model, engine in named if engine.CHECKPOINTS is not None]


def aligns(recognizer: Any) -> bool:
    """Whether an engine's class may have words aligned; some know only with their model whether they do."""
    return hasattr(recognizer, "aligner")
