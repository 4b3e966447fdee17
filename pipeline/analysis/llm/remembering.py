"""A client that asks an endpoint nothing that is known."""

from collections.abc import Callable, Mapping
from typing import Any

from pipeline.analysis.engine import AnalysisOptions
from pipeline.analysis.llm.client import Completion, Message, ModelClient
from pipeline.domain.insight import ModelText, ModelTexts
from pipeline.identity import digest_of


def key_of(options: AnalysisOptions, messages: list[Message]) -> str:
    """What an answer is known by: the model, its room, and all that it is told."""
    return digest_of(options.model, options.max_tokens, messages)


class RememberingClient(ModelClient):
    """`given`: what the endpoint answered now."""

    def __init__(
        self,
        options: AnalysisOptions,
        schema: Callable[[bool], dict[str, Any]],
        ends: float,
        known: Mapping[str, ModelText],
    ) -> None:
        super().__init__(options, schema, ends)
        self._known = known
        self.given: ModelTexts = {}

    def ask(self, messages: list[Message]) -> Completion:
        key = key_of(self._options, messages)
        told = self._known.get(key) or self.given.get(key)
        if told is not None:
            return Completion(told.text, None, told.cut_off)
        completion = super().ask(messages)
        self.given[key] = ModelText(completion.text, completion.cut_off)
        return completion
