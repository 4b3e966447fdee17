"""Engine with a language model behind any OpenAI-compatible endpoint. Its statements count only if the transcript
supports them.
"""

from pipeline.analysis.llm.engine import LanguageModel

__all__ = ["LanguageModel"]
