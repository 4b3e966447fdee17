"""The calls of the bench of real speech, by name: `compose(name, sources, half)` makes one, the same each time."""

import random
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from bench.lib import sounds
from bench.real.calls import GAPS, Builder, ComposedCall, at_16k, finish
from bench.real.lines import at_snr, edges, level, noise
from bench.real.sources import RATE, Clip, Half, Sound, Sources

ALL, FIRST, SECOND = range(10), range(5), range(5, 10)  # utterances of each party in a dialogue


def dialogue(sources: Sources, half: Half, seed: int, per_party: range = ALL, overlap: float = 0.0) -> Builder:
    """Both speakers of a half in turn, the utterances of each in the range `per_party`.

    `overlap`: how many of the changes begin 0.4 to 1.2 s early, 0..1.
    """
    rng = random.Random(seed)
    built = Builder(seed)
    parties = list(sources.utterances(half).values())
    at = 1.0
    for index in per_party:
        for channel, clips in enumerate(parties):
            at = built.say(channel, max(0.0, at), clips[index])
            at += -rng.uniform(0.4, 1.2) if rng.random() < overlap else rng.choice(GAPS)
    built.pad(1.0)
    return built


# What is done to a dialogue before its lines are coded.


def over_pink(decibel: float, lines: list[Sound], _: Sources, __: Half, seed: int) -> list[Sound]:
    """Pink noise on both lines."""
    rng = np.random.default_rng(seed)
    return [at_snr(line, noise(len(line), 1, rng), decibel) for line in lines]


def over_babble(decibel: float, lines: list[Sound], sources: Sources, half: Half, seed: int) -> list[Sound]:
    """Six other people talking behind each party."""
    rng = random.Random(seed)
    out = []
    for line in lines:
        clips = rng.sample(sources.voices(half), 6)
        voices = [np.resize(level(clip.load()), len(line)) for clip in clips]
        rolled = [np.roll(voice, rng.randrange(len(line))) for voice in voices]
        out.append(at_snr(line, np.asarray(sum(rolled), np.float32), decibel))
    return out


def over_music(decibel: float, lines: list[Sound], sources: Sources, half: Half, _: int) -> list[Sound]:
    """Compose hold music that continues under the first party."""
    music = sources.music(half)[0].load()[15 * RATE :]
    return [at_snr(lines[0], music, decibel), *lines[1:]]


def bleeding(decibel: float, lines: list[Sound], *_: object) -> list[Sound]:
    """Compose a call with bleed of each party into the other's line, that many dB lower and 20 ms late."""
    late = [np.pad(line, (RATE // 50, 0))[: len(line)] * np.float32(10 ** (-decibel / 20)) for line in lines]
    return [np.asarray(line + other, np.float32) for line, other in zip(lines, reversed(late), strict=True)]


def quieter(decibel: float, lines: list[Sound], *_: object) -> list[Sound]:
    """Both lines so many dB lower."""
    return [np.asarray(line * 10 ** (-decibel / 20), np.float32) for line in lines]


Treatment = Callable[[list[Sound], Sources, Half, int], list[Sound]]
TREATMENTS: dict[str, Treatment] = {
    "pink-20": partial(over_pink, 20.0),
    "pink-10": partial(over_pink, 10.0),
    "babble-20": partial(over_babble, 20.0),
    "babble-10": partial(over_babble, 10.0),
    "music-20": partial(over_music, 20.0),
    "music-10": partial(over_music, 10.0),
    "low-30": partial(quieter, 30.0),
    "bleed-10": partial(bleeding, 10.0),
}


def _dialogue(
    sources: Sources,
    half: Half,
    name: str,
    line: str,
    per_party: range = ALL,
    layout: str = "stereo",
    treatment: str = "",
    overlap: float = 0,
) -> ComposedCall:
    seed = (100 if half == "development" else 101) + (200 if overlap else 0)
    built = dialogue(sources, half, seed, per_party, overlap)
    lines = built.lines()
    if treatment:
        lines = TREATMENTS[treatment](lines, sources, half, seed + 50)
    return finish(built, lines, name, half, "mixed" if layout in ("mixed", "identical") else name, line, layout)


# Calls in which a machine speaks.

MENU: dict[Half, str] = {"development": "basic-pbx-ivr-main", "report": "conf-usermenu"}
QUEUE: dict[Half, str] = {"development": "queue-youarenext", "report": "queue-periodic-announce"}
PLEASE_HOLD: dict[Half, str] = {"development": "one-moment-please", "report": "pls-hold-while-try"}
GREETING: dict[Half, tuple[str, ...]] = {
    "development": ("vm-theperson", "digits/4", "digits/2", "vm-isonphone", "vm-leavemsg"),
    "report": ("vm-extension", "digits/1", "digits/6", "vm-isunavail", "followme/sorry"),
}


def menu(sources: Sources, half: Half, name: str, line: str, layout: str) -> ComposedCall:
    """Compose a menu, a key, a queue with music, talk, hold with music and an announcement in it, talk."""
    built = Builder(11)
    first, second = sources.utterances(half).values()
    music = [clip.load() for clip in sources.music(half)]
    at = built.prompt(0, 1.0, sources.prompt(MENU[half]))
    built.put(1, at + 0.6, at_16k(sounds.keys("2", np.random.default_rng(1))) * 0.4, "dtmf", "2")
    at = built.prompt(0, at + 1.5, sources.prompt(QUEUE[half]))
    at = built.put(0, at + 0.4, music[0][5 * RATE : 23 * RATE] * 0.5, "music", "queue") + 0.8
    at = _talk(built, at, first[:3], second[:3])
    at = built.put(0, at, music[1][20 * RATE : 34 * RATE] * 0.5, "music", "hold")
    at = built.prompt(0, at + 0.3, sources.prompt(PLEASE_HOLD[half])) + 0.3
    at = built.put(0, at, music[1][34 * RATE : 46 * RATE] * 0.5, "music", "hold") + 0.8
    _talk(built, at, first[3:6], second[3:6])
    built.pad(1.0)
    return built.call(name, half, "menu and hold", line, layout)


def answered_after_prompt(sources: Sources, half: Half, name: str, gap: float) -> ComposedCall:
    """Compose a call that the rep answers `gap` seconds after a queue's message, without music between."""
    built = Builder(15)
    first, second = sources.utterances(half).values()
    at = built.prompt(0, 1.0, sources.prompt(QUEUE[half])) + gap
    _talk(built, at, first[:4], second[:4])
    built.pad(1.0)
    return built.call(name, half, "menu and hold")


def spoken_menu(sources: Sources, half: Half, name: str) -> ComposedCall:
    """Compose a call whose customer answers the menu by voice and is transferred."""
    built = Builder(16)
    first, second = sources.utterances(half).values()
    at = built.prompt(0, 1.0, sources.prompt(MENU[half])) + 1.2
    at = built.say(1, at, second[4]) + 1.0
    at = built.prompt(0, at, sources.prompt(QUEUE[half])) + 1.0
    _talk(built, at, first[6:9], second[6:9])
    built.pad(1.0)
    return built.call(name, half, "menu and hold")


def voicemail(sources: Sources, half: Half, name: str, layout: str) -> ComposedCall:
    """Compose a call that reaches a voicemail, where the rep leaves a message."""
    built = Builder(12)
    first = next(iter(sources.utterances(half).values()))
    ringing = sounds.cadence(*sounds.RINGING["United States"], 14, np.random.default_rng(2))
    at = built.put(1, 0.5, at_16k(ringing) * 0.15, "ringback", "United States") + 0.5
    for prompt in GREETING[half]:
        at = built.prompt(1, at, sources.prompt(prompt)) + 0.15
    at = built.put(1, at + 0.3, level(sources.prompt("beep").load(), -18), "beep", "beep") + 1.0
    for clip in first[:4]:
        at = built.say(0, at, clip) + 0.8
    built.pad(1.0)
    return built.call(name, half, "voicemail", layout=layout)


def single_words(sources: Sources, half: Half, name: str) -> ComposedCall:
    """Isolated words with 0.4 to 1 s between them: digits, ordinals, days, months, spelling words."""
    rng = random.Random(21)
    names = [
        clip
        for clip in sources.prompts(half)
        if clip.id.startswith(("en/digits/", "en/phonetic/")) and clip.text.replace("'", "").isalpha()
    ]
    rng.shuffle(names)
    built = Builder(21)
    at = 1.0
    for clip in names[:60]:
        sound = level(clip.load(), -23)
        onset, offset = edges(sound)
        cut = sound[max(0, int((onset - 0.12) * RATE)) : int((offset + 0.12) * RATE)]
        at = built.put(0, at, cut, "speech", clip.id, speaker=clip.speaker, text=clip.text)
        at += rng.choice((0.15, 0.3, 0.5, 0.8))
    built.pad(1.0)
    return built.call(name, half, "single words", layout="first")


def prompts(sources: Sources, half: Half, name: str, language: str, seconds: float = 75.0) -> ComposedCall:
    """Long prompts of one language, the longest texts of the half first, 1.2 s apart."""
    built = Builder(22)
    at = 1.0
    for clip in sorted(sources.prompts(half, language), key=lambda clip: (-len(clip.text), clip.id)):
        if at < seconds:
            at = built.prompt(0, at, clip) + 1.2
    built.pad(1.0)
    return built.call(name, half, f"prompts {language}", layout="first", language=language)


# Calls without speech.


def hold_music(
    sources: Sources, half: Half, name: str, line: str, gain: float = 1.0, seconds: float = 180.0
) -> ComposedCall:
    """Compose every piece of the half in turn, as a queue plays it."""
    built = Builder(31)
    pieces = sources.music(half)
    at = 1.0
    for clip in pieces:
        sound = clip.load()[: round(seconds / len(pieces) * RATE)]
        at = built.put(0, at, sound * np.float32(gain), "music", clip.id) + 1.0
    return built.call(name, half, "no speech", line, "first")


def tones(_: Sources, half: Half, name: str) -> ComposedCall:
    """Ringing and busy tones of several countries, keys, beeps, a fax machine, special information tones."""
    rng = np.random.default_rng(41 if half == "development" else 42)
    built = Builder(32)
    at = 1.0
    for country, (frequencies, beats) in sounds.RINGING.items():
        at = _generated(built, at, sounds.cadence(frequencies, beats, 10, rng), "ringback", country) + 0.5
    for country, (frequencies, beats) in sounds.ENGAGED.items():
        at = _generated(built, at, sounds.cadence(frequencies, beats, 5, rng), "busy", country) + 0.5
    digits = "".join(rng.choice(list("0123456789*#"), 12))
    at = _generated(built, at, sounds.keys(digits, rng), "dtmf", digits) + 1.0
    for _index in range(6):
        at = _generated(built, at, sounds.beep(rng), "beep", "beep") + 2.0
        at = _generated(built, at, sounds.information_tone(rng), "beep", "special information tone") + 2.0
    _generated(built, at, sounds.fax(20, rng), "noise", "fax")
    built.pad(1.0)
    return built.call(name, half, "no speech", layout="first")


def noises(_: Sources, half: Half, name: str) -> ComposedCall:
    """Silence, hiss, rumble, hum, clicks at several levels, 20 s each."""
    rng = np.random.default_rng(51 if half == "development" else 52)
    built = Builder(33, floor=-80)
    at = 20.0
    for exponent, dbfs in ((1, -62), (1, -40), (0, -45), (0, -30), (2, -35), (2, -25)):
        sound = noise(20 * RATE, exponent, rng) * np.float32(10 ** (dbfs / 20))
        at = built.put(0, at, sound, "noise", f"1/f^{exponent} {dbfs} dBFS")
    for dbfs in (-45, -30):
        at = _generated(built, at, sounds.hum(20, rng), "noise", f"hum {dbfs} dBFS", dbfs)
        at = _generated(built, at, sounds.clicks(20, rng), "noise", f"clicks {dbfs} dBFS", dbfs)
    built.pad(1.0)
    return built.call(name, half, "no speech", layout="first")


def unanswered(sources: Sources, half: Half, name: str) -> ComposedCall:
    """Compose a long unanswered queue: music interrupted by the same message, 8 s of quiet after each."""
    built = Builder(34)
    music, message = sources.music(half)[-1].load(), sources.prompt(QUEUE[half])
    at = 1.0
    for index in range(4):
        piece = music[index * 15 * RATE : (index + 1) * 15 * RATE]
        at = built.put(0, at, piece * np.float32(0.5), "music", "queue") + 0.5
        at = built.prompt(0, at, message) + 8.0
    return built.call(name, half, "unanswered", layout="first")


def _talk(built: Builder, at: float, first: Sequence[Clip], second: Sequence[Clip]) -> float:
    for ours, theirs in zip(first, second, strict=True):
        at = built.say(0, at, ours) + 0.7
        at = built.say(1, at, theirs) + 0.6
    return at


def _generated(built: Builder, at: float, sound: Sound, kind: str, source: str, dbfs: float = -18.0) -> float:
    """Put a sound of `bench.lib.sounds` (8 kHz) at a level."""
    return built.put(0, at, level(at_16k(sound), dbfs), kind, source)


Maker = Callable[[Sources, Half, str], ComposedCall]


def _catalog() -> dict[str, Maker]:
    makers: dict[str, Maker] = {
        "wide": partial(_dialogue, line="wide"),
        "mulaw": partial(_dialogue, line="mulaw"),
        "gsm": partial(_dialogue, line="gsm"),
        "amr-4.75": partial(_dialogue, line="amr-4.75"),
        "amr-12.2": partial(_dialogue, line="amr-12.2", per_party=FIRST),
        "g722": partial(_dialogue, line="g722", per_party=SECOND),
        "opus-12": partial(_dialogue, line="opus-12", per_party=FIRST),
        "low-30": partial(_dialogue, line="mulaw", treatment="low-30", per_party=SECOND),
    }
    makers["bleed-10"] = partial(_dialogue, line="mulaw", treatment="bleed-10", per_party=FIRST)
    for background in ("pink", "babble", "music"):
        for decibel, per_party in ((20, FIRST), (10, ALL if background == "pink" else SECOND)):
            name = f"{background}-{decibel}"
            makers[name] = partial(_dialogue, line="mulaw", treatment=name, per_party=per_party)
    makers["overlap"] = partial(_dialogue, line="mulaw", overlap=0.5)
    makers["mixed"] = partial(_dialogue, line="mulaw", layout="mixed")
    makers["mixed-wide"] = partial(_dialogue, line="wide", layout="mixed", per_party=SECOND)
    makers["mixed-overlap"] = partial(_dialogue, line="mulaw", layout="mixed", overlap=0.5)
    makers["identical"] = partial(_dialogue, line="mulaw", layout="identical", per_party=FIRST)
    makers["menu"] = partial(menu, line="mulaw", layout="stereo")
    makers["menu-gsm"] = partial(menu, line="gsm", layout="stereo")
    makers["menu-mixed"] = partial(menu, line="mulaw", layout="mixed")
    makers["answered-0.8"] = partial(answered_after_prompt, gap=0.8)
    makers["answered-1.3"] = partial(answered_after_prompt, gap=1.3)
    makers["spoken-menu"] = spoken_menu
    makers["voicemail"] = partial(voicemail, layout="stereo")
    makers["voicemail-mixed"] = partial(voicemail, layout="mixed")
    makers["single-words"] = single_words
    makers |= {
        f"prompts-{language}": partial(prompts, language=language) for language in ("en", "es", "fr", "it", "ru")
    }
    for line in ("mulaw", "gsm", "amr-4.75"):
        makers[f"music-{line}"] = partial(hold_music, line=line)
    makers["music-soft"] = partial(hold_music, line="mulaw", gain=0.1)
    makers |= {"tones": tones, "noises": noises, "unanswered": unanswered}
    return makers


CATALOG = _catalog()
"""Every call by name; the same names in both halves."""


def compose(name: str, sources: Sources, half: Half) -> ComposedCall:
    """Compose the call of that name. Raises `KeyError` and `bench.real.sources.SourceMissing`."""
    call = CATALOG[name](sources, half, name)
    if call.half != half or call.name != name:
        raise ValueError(f"{name} of {half} came out as {call.name} of {call.half}.")
    return call
