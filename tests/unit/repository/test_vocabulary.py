"""Each value of a vocabulary has a text on each surface that shows it."""

from collections.abc import Mapping
from enum import StrEnum

import pytest
from babel.messages.pofile import read_po

from pipeline import record_texts
from pipeline.domain.vocabulary import CallOutcome, CallWarning, NoSpeechReason
from serve_app.console import labels
from serve_app.console.wording import FOLDER


def translations(language: str, texts: Mapping[str, str]) -> dict[str, str]:
    with (FOLDER / f"{language}.po").open("rb") as file:
        catalog = read_po(file)
    return {name: str(entry.string) for name, text in texts.items() if (entry := catalog.get(text))}


@pytest.mark.parametrize(
    ("vocabulary", "texts"),
    [
        pytest.param(CallOutcome, labels.OUTCOMES, id="outcomes in the console"),
        *(
            pytest.param(CallOutcome, translations(path.stem, labels.OUTCOMES), id=f"outcomes in {path.name}")
            for path in sorted(FOLDER.glob("*.po"))
        ),
        pytest.param(CallWarning, record_texts.WARNINGS, id="warnings in the record"),
        pytest.param(NoSpeechReason, record_texts.NO_SPEECH, id="calls without speech in the record"),
    ],
)
def test_each_value_has_a_text(vocabulary: type[StrEnum], texts: Mapping[str, str]) -> None:
    assert {value for value in vocabulary if not texts.get(value)} == set()
    assert texts.keys() <= set(vocabulary)
