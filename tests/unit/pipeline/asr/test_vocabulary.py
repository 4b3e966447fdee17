"""Names and terms as a prompt, and that they reach the real model without disturbing other calls' chunks."""

import pytest

from pipeline.asr import AsrOptions, decoding, load
from pipeline.asr.decoding import MAX_VOCABULARY as MAX_TOKENS
from pipeline.asr.decoding import terms
from pipeline.asr.decoding import vocabulary_tokens as tokens
from pipeline.checkpoints import manifest
from pipeline.domain.speech import CUSTOMER, REP, Chunk
from tests import fixture_checkpoints


def encode(text):
    return [ord(c) for c in text]


@pytest.fixture(scope="module")
def listening():
    return load(AsrOptions(model=str(fixture_checkpoints.RECOGNITION), device="cpu", cpu_threads=1, vocabulary="on"))


@pytest.fixture
def chunks():
    return [Chunk(REP, 0.6, 5.2, "en"), Chunk(CUSTOMER, 5.2, 11.0, "en"), Chunk(REP, 11.0, 15.0, "en")]


def cut(call, chunks):
    return [call.cut(chunk.channel, chunk.start, chunk.end) for chunk in chunks]


def spoken(texts):
    return [[word.text for word in text.words] for text in texts]


def test_terms_are_cleaned_and_told_apart_without_case():
    assert terms(["Ada  Lovelace", "", " \n", "ada lovelace", "Grund\x00ig\n"]) == ("Ada Lovelace", "Grund ig")


def test_the_prompt_begins_like_a_word_and_joins_terms_with_commas():
    assert "".join(map(chr, tokens(["Ada", "Bo"], encode))) == " Ada, Bo"


def test_the_first_terms_win_and_none_is_cut_in_two():
    prompt = "".join(map(chr, tokens([f"name{i:03}" for i in range(100)], encode)))
    assert len(prompt) <= MAX_TOKENS
    assert prompt.startswith(" name000, name001") and prompt.split(", ")[-1] == f"name{len(prompt.split(', ')) - 1:03}"


def test_a_term_that_is_too_long_alone_gives_no_prompt():
    assert tokens(["x" * 500], encode) == []


def test_no_terms_give_no_prompt():
    assert tokens([], encode) == []


def test_a_checkpoint_that_was_not_measured_gets_no_vocabulary(sample_call, transcriber, chunks):
    samples = cut(sample_call("01"), chunks)
    with_terms = transcriber.transcribe(samples, chunks, [["Northwind Energy", "Anna"]] * 3)
    assert with_terms == transcriber.transcribe(samples, chunks)


def test_a_manifest_can_say_that_vocabulary_helps(tmp_path):
    (tmp_path / manifest.MANIFEST).write_text('{"vocabulary": true}')
    assert manifest.read("own", tmp_path).vocabulary
    (tmp_path / manifest.MANIFEST).write_text("{}")
    assert not manifest.read("own", tmp_path).vocabulary


def test_vocabulary_reaches_the_model(sample_call, listening, chunks):
    samples = cut(sample_call("01"), chunks)
    without = listening.transcribe(samples, chunks)
    with_terms = listening.transcribe(samples, chunks, [["Northwind Energy", "Anna"]] * 3)
    assert [t.mean_log_probability for t in with_terms] != [t.mean_log_probability for t in without]


def test_calls_with_different_vocabularies_do_not_disturb_each_other(sample_call, listening, chunks):
    samples = cut(sample_call("01"), chunks)
    lists = [["Northwind Energy"], [], ["a much longer list", "of names", "Anna"]]
    together = listening.transcribe(samples, chunks, lists)
    alone = [listening.transcribe([x], [c], [v])[0] for x, c, v in zip(samples, chunks, lists, strict=True)]
    assert [text.chunk for text in together] == chunks
    assert spoken(together) == spoken(alone)


def test_lists_of_as_many_tokens_share_a_batch_and_stay_apart(sample_call, listening, chunks, monkeypatch):
    samples = cut(sample_call("01"), chunks)
    by_length = {}
    for term in ("Anna", "Otto", "Weber", "Northwind", "Lisbon", "Maria", "energy", "invoice"):
        by_length.setdefault(len(tokens([term], listening._tokenizer("en").encode)), []).append([term])
    first, second = max(by_length.values(), key=len)[:2]
    lists = [first, second, first]
    alone = [listening.transcribe([x], [c], [v])[0] for x, c, v in zip(samples, chunks, lists, strict=True)]
    batches, beam = [], decoding.beam
    monkeypatch.setattr(decoding, "beam", lambda *args: batches.append(args[3]) or beam(*args))
    together = listening.transcribe(samples, chunks, lists)
    assert [len(batch) for batch in batches] == [3]
    assert len(set(batches[0])) == 2
    assert spoken(together) == spoken(alone)


def test_a_list_that_chunks_share_is_read_once(sample_call, listening, chunks, monkeypatch):
    """Tokenizing hundreds of terms takes milliseconds; a batch of 32 chunks would pay them 32 times."""
    read = []
    monkeypatch.setattr(
        decoding, "vocabulary_tokens", lambda terms, encode: read.append(terms) or tokens(terms, encode)
    )
    listening.transcribe(cut(sample_call("01"), chunks), chunks, [["Northwind Energy"], ["Anna"], ["Anna"]])
    assert sorted(read) == [("Anna",), ("Northwind Energy",)]


def test_more_terms_than_fit_still_give_words(sample_call, listening, chunks):
    samples = cut(sample_call("01"), chunks)
    texts = listening.transcribe(samples, chunks, [[f"customer number {i}" for i in range(500)]] * 3)
    assert all(text.chunk == chunk for text, chunk in zip(texts, chunks, strict=True))
