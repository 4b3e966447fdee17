"""The second engine of the analysis: a language model behind any OpenAI-compatible endpoint. It is asked to state, and
believed only where the transcript bears it out."""

from pipeline.analysis.llm.engine import LanguageModel

__all__ = ["LanguageModel"]
