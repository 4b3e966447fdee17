"""A Whisper tokenizer that encodes as OpenAI's does.

The tokenizer.json of converted Whisper models on the hub lacks the first merge of GPT-2's list, "Ġ t". Decoding does
not need it. But encoded without it " that" is " " and "that", two tokens that no Whisper writes so: the model finds
them improbable, and looks for them in the wrong place.
"""

import json
from typing import Any

FIRST = ["Ġ", "t"]


def complete(tokenizer: Any) -> Any:
    """Return a `tokenizers.Tokenizer` with the merge that it lacks, or the same where it lacks none."""
    from tokenizers import Tokenizer

    described = json.loads(tokenizer.to_str())
    model = described["model"]
    merges = model.get("merges") or []
    pair = FIRST if merges and isinstance(merges[0], list) else " ".join(FIRST)
    if not merges or "".join(FIRST) not in model["vocab"] or pair in merges:
        return tokenizer
    merges.insert(0, pair)
    return Tokenizer.from_str(json.dumps(described))
