"""The calls of real speech as a gold set, and what systems made of them in the same form.

Words have no times but in calls of isolated words, where they are those of the sound. What a machine says (menus,
greetings) is its own speaker's.
"""

from collections import defaultdict
from collections.abc import Sequence

from bench.real.calls import SoundEvent, Truth
from bench.real.outputs import RecognizedWord, SystemOutput
from pipeline.evaluation.truth import TrueCall, TrueTurn, TrueWord, in_order

MACHINE = "machine"


def truth_of(truth: Truth) -> TrueCall:
    """Who says which words when."""
    spoken = [event for event in truth.events if event.spoken]
    turns = [_turn(event, None if truth.mixed else event.channel) for event in spoken]
    return TrueCall(truth.name, in_order(turns), truth.language, truth.duration)


def facts_of(truth: Truth) -> dict[str, str]:
    """What its calls are sliced by: the layout, and what is done to the sound."""
    layout = "separated" if not truth.mixed else "mixed" if truth.channels == 1 else "identical"
    noisy = truth.group.startswith(("babble-", "pink-", "music-", "bleed-"))
    coded = truth.group.startswith(("amr-", "g722", "gsm", "mulaw", "opus-", "wide"))
    return {"layout": layout, "sound": "noise, music, bleed" if noisy else "codec alone" if coded else truth.group}


def heard_of(output: SystemOutput, truth: Truth) -> TrueCall:
    """What a system wrote; its seconds are of a processor."""
    by_turn: dict[tuple[int, int], list[RecognizedWord]] = defaultdict(list)
    for word in output.words:
        by_turn[word.turn, word.channel].append(word)
    turns = [_heard_turn(output, turn, words, truth.mixed) for (turn, _), words in by_turn.items()]
    seconds = sum(output.seconds.values())
    return TrueCall(output.call, in_order(turns), output.language, truth.duration, processing=seconds)


def _turn(event: SoundEvent, channel: int | None) -> TrueTurn:
    texts = event.text.split()
    timed = len(texts) == 1
    words = tuple(TrueWord(text, *((event.onset, event.offset) if timed else ())) for text in texts)
    speaker = event.speaker if event.kind == "speech" else MACHINE
    return TrueTurn(speaker, event.onset, event.offset, words, channel)


def _heard_turn(output: SystemOutput, turn: int, words: Sequence[RecognizedWord], mixed: bool) -> TrueTurn:
    joined: list[TrueWord] = []
    for word in words:
        if joined and not word.text.startswith(" "):
            joined[-1] = TrueWord(joined[-1].text + word.text, joined[-1].start, word.end)
        else:
            joined.append(TrueWord(word.text.strip(), word.start, word.end))
    kept = [word for word in joined if word.text]
    speaker = MACHINE if output.turns[turn].machine else output.turns[turn].speaker
    start, end = min(word.start for word in words), max(word.end for word in words)
    return TrueTurn(speaker, start, end, tuple(kept), None if mixed else words[0].channel)
