"""Tokenizer in the exact layout of multilingual Whisper (51865 ids), with only N_TEXT real text tokens.
usage: tok.py WORK  -> WORK/tokenizer.json"""

import json
import random
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

N_TEXT = 1200
LANGS = [
    "en",
    "zh",
    "de",
    "es",
    "ru",
    "ko",
    "fr",
    "ja",
    "pt",
    "tr",
    "pl",
    "ca",
    "nl",
    "ar",
    "sv",
    "it",
    "id",
    "hi",
    "fi",
    "vi",
    "he",
    "uk",
    "el",
    "ms",
    "cs",
    "ro",
    "da",
    "hu",
    "ta",
    "no",
    "th",
    "ur",
    "hr",
    "bg",
    "lt",
    "la",
    "mi",
    "ml",
    "cy",
    "sk",
    "te",
    "fa",
    "lv",
    "bn",
    "sr",
    "az",
    "sl",
    "kn",
    "et",
    "mk",
    "br",
    "eu",
    "is",
    "hy",
    "ne",
    "mn",
    "bs",
    "kk",
    "sq",
    "sw",
    "gl",
    "mr",
    "pa",
    "si",
    "km",
    "sn",
    "yo",
    "so",
    "af",
    "oc",
    "ka",
    "be",
    "tg",
    "sd",
    "gu",
    "am",
    "yi",
    "lo",
    "uz",
    "fo",
    "ht",
    "ps",
    "tk",
    "nn",
    "mt",
    "sa",
    "lb",
    "my",
    "bo",
    "tl",
    "mg",
    "as",
    "tt",
    "haw",
    "ln",
    "ha",
    "ba",
    "jw",
    "su",
]
assert len(LANGS) == 99
VOCAB = 51865
EOT, SOT, TRANSLATE, TRANSCRIBE, PREV, NOSPEECH, NOTS, TS0 = 50257, 50258, 50358, 50359, 50361, 50362, 50363, 50364
LANG = {l: 50259 + i for i, l in enumerate(LANGS)}
SPECIAL = {
    "<|endoftext|>": EOT,
    "<|startoftranscript|>": SOT,
    **{f"<|{l}|>": i for l, i in LANG.items()},
    "<|translate|>": 50358,
    "<|transcribe|>": 50359,
    "<|startoflm|>": 50360,
    "<|startofprev|>": 50361,
    "<|nospeech|>": 50362,
    "<|notimestamps|>": 50363,
}


def build(texts, path):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=N_TEXT, show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())
        ),
    )
    j = json.loads(t.to_str())
    assert len(j["model"]["vocab"]) == N_TEXT
    # special tokens live in the vocabulary with their Whisper ids, so the file needs no 49k fillers
    j["model"]["vocab"].update(SPECIAL)
    j["added_tokens"] = [
        dict(id=i, content=s, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
        for s, i in SPECIAL.items()
    ]
    json.dump(j, open(path, "w"), ensure_ascii=False, separators=(",", ":"))


def vocabulary(tokenizer):
    """All 51865 strings in id order, for CTranslate2."""
    v = {i: s for s, i in tokenizer.get_vocab().items()}
    # CTranslate2 4.8 calls a Whisper model multilingual when its vocabulary has the empty string, which
    # in the multilingual Whisper vocabulary is id 50256 (older versions went by the size 51865)
    v[50256] = ""
    return [v[i] if i in v else (f"<u{i}>" if i < TS0 else f"<|{(i - TS0) * 0.02:.2f}|>") for i in range(VOCAB)]


# compact ids used in training: text, specials and timestamps, plus ONE class that stands for all fillers
N_SPEC = VOCAB - EOT
N_COMPACT = N_TEXT + N_SPEC + 1
N_FILL = EOT - N_TEXT


def compact(i):
    return i if i < N_TEXT else i - EOT + N_TEXT


def expand_rows(w):
    """(N_COMPACT, d) -> (VOCAB, d); fillers all get the last row."""
    import torch

    return torch.cat([w[:N_TEXT], w[-1:].expand(N_FILL, -1), w[N_TEXT:-1]])


if __name__ == "__main__":
    import grammar

    rng = random.Random(3)
    texts = [" " + grammar.sentence(l, rng) for l, n in (("en", 40000), ("es", 10000), ("de", 10000)) for _ in range(n)]
    build(texts, sys.argv[1] + "/tokenizer.json")
    t = Tokenizer.from_file(sys.argv[1] + "/tokenizer.json")
    for s in (" Hello, this is Anna from Northwind Energy.", " Le voy a enviar la factura mañana.", " xylophone"):
        e = t.encode(s, add_special_tokens=False)
        print(e.tokens, repr(t.decode(e.ids)))
    assert [t.token_to_id(s) for s in SPECIAL] == list(SPECIAL.values())
    n = [len(t.encode(x).ids) / len(x.split()) for x in texts[:2000]]
    print("tokens per word", sum(n) / len(n), len(vocabulary(t)), len(set(vocabulary(t))))
