from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.domain.speech import ChunkText
from pipeline.language.identification import name, of_chunk

# Of a token: tiny.en gave English telephone speech -0.39 and more, Spanish and French -0.67 and less, or loops.
MIN_LOG_PROB = -0.6
MAX_COMPRESSION_RATIO = 2.4  # of gzip; more is a loop
SHORT_SECONDS = 3.0  # total speech below which the language is uncertain
UNSURE = 0.75  # probability below which the language is uncertain
MIN_NOTED_SECONDS = 2.0  # a language that the parties speak for less is not mentioned in addition to the call's


@dataclass(frozen=True, slots=True)
class CallLanguage:
    """`probability` is the mean over the seconds in `code`; both None where nothing was said. `note`: see `decide`.

    `probability` is also None where the recognizer knows no other language than `code`.
    """

    code: str | None
    probability: float | None
    note: str | None


def decide(texts: Sequence[ChunkText], seconds: Callable[[ChunkText], float]) -> CallLanguage:
    """Return the language the parties speak longest; `seconds` returns how much of a chunk they speak.

    Announcements and voicemail greetings count only where no party says anything. The note says what makes the language
    uncertain: too little speech, another language about as probable, several spoken languages, or a recognizer that
    knows only one.
    """
    spoken = [(text, seconds(text)) for text in texts if text.words]
    if not spoken:
        return CallLanguage(None, None, None)
    only_machines = not any(weight > 0 for _, weight in spoken)
    if only_machines:
        spoken = [(text, text.chunk.seconds) for text, _ in spoken]
    total: dict[str, float] = defaultdict(float)
    for text, weight in spoken:
        total[text.language] += weight
    code = min(total, key=lambda language: (-total[language], language))
    notes = ["No party speaks; this is the language of an announcement."] if only_machines else []
    if not any(text.language_detected for text, _ in spoken):
        return CallLanguage(code, None, " ".join(notes + _not_detected(code, spoken)))
    mass = _mass([(text, weight) for text, weight in spoken if text.language == code])
    probability = min(1.0, mass.get(code, 0.0))
    notes += _notes(code, probability, mass, total)
    return CallLanguage(code, round(probability, 4), " ".join(notes) or None)


def _mass(spoken: Sequence[tuple[ChunkText, float]]) -> dict[str, float]:
    seconds = sum(weight for _, weight in spoken) or 1.0
    mass: dict[str, float] = defaultdict(float)
    for text, weight in spoken:
        for code, probability in of_chunk(text).items():
            mass[code] += weight * probability / seconds
    return dict(mass)


def _not_detected(code: str, spoken: Sequence[tuple[ChunkText, float]]) -> list[str]:
    notes = [f"The recognizer knows {name(code)} only; the language was not detected."]
    hopeless = sum(
        weight
        for text, weight in spoken
        if text.mean_log_probability < MIN_LOG_PROB or text.compression > MAX_COMPRESSION_RATIO
    )
    if hopeless > sum(weight for _, weight in spoken) / 2:
        notes.append(f"Most of its text is improbable or repeats itself: the call may not be in {name(code)}.")
    return notes


def _notes(code: str, probability: float, mass: dict[str, float], total: dict[str, float]) -> list[str]:
    notes = []
    if sum(total.values()) < SHORT_SECONDS:
        notes.append(f"The language is identified from only {sum(total.values()):.1f} s of speech.")
    if probability < UNSURE:
        likely = sorted((other for other in mass if other != code), key=lambda other: (-mass[other], other))[:1]
        shares = [f"{mass.get(each, 0.0):.2f} {name(each)}" for each in (code, *likely)]
        notes.append(f"Not clear which language it is: {', '.join(shares)}.")
    several = sorted(
        (each for each in total if total[each] >= MIN_NOTED_SECONDS), key=lambda each: (-total[each], each)
    )
    if len(several) > 1:
        notes.append(f"{len(several)} languages are spoken: " + _listed(several, total) + ".")
    return notes


def _listed(codes: Sequence[str], total: dict[str, float]) -> str:
    return ", ".join(f"{name(code)} for {total[code]:.0f} s" for code in codes)
