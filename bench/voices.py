"""Synthetic people on the telephone, for figures about voices: espeak-ng's voice variants, each with its own pitch,
pace and length of vocal tract, saying sentences over lines with codecs, noise and levels.

The demo diarization checkpoint was trained on other variants than these. `TUNING` were heard when its clustering was
tuned and set the thresholds of this project; `HELD_OUT` were used for neither.
"""

import shutil
import subprocess
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy.signal import resample_poly

from bench.sounds import RATE, level, through

Sound = npt.NDArray[np.float32]
Random = np.random.Generator

TUNING = ("Andy", "Annie", "benjamin", "Denis", "ed", "Linda", "Marco", "michel", "f3", "f5", "klatt3")
HELD_OUT = ("m3", "m7", "steph2", "Diogo", "Alicia", "pablo", "norbert", "rob", "belinda")
PEOPLE_OF_VARIANT = ((0.9, 40, 150), (1.0, 55, 165), (1.11, 62, 175))  # vocal tract, pitch (0..99), words a minute
LINES = ("none", "mulaw", "alaw", "amr", "g726", "opus")
SENTENCES = """Good morning, thank you for calling, how can I help you today?
Could you please give me your customer number?|The invoice was supposed to arrive on Monday, but it never came.
Let me check that for you, just one moment please.|I have been waiting for more than three weeks now.
I am sorry to hear that.|Is there anything else I can do for you?|No, that is all, thank you very much.
My address is fourteen Harbour Street, in Portland.|Can you spell your last name for me?
I would like to cancel my subscription as soon as possible.|We can send a technician on Thursday at ten o'clock.
That does not work for me, I am in Leeds until Friday.|The total amount is two hundred and thirty dollars.
Did you receive the message that we sent last week?|What is the best number to reach you?
It stopped working after the storm.|Have you tried turning it off and on again?
Twice, and the red light is still blinking.|I understand, we will fix this today.|Goodbye, have a nice day.
Actually, I have one more question about the contract.|How much does the router cost per month?
If you pay before Tuesday there is no extra fee.|Perfect, let us do that.
My daughter set up the account for me last year.|The weather in Dublin has been terrible.""".replace("\n", "|").split(
    "|"
)


@dataclass(frozen=True, slots=True)
class Person:
    """A synthetic voice. `tract` is the factor by which its formants lie higher than the variant's own."""

    name: str
    variant: str
    tract: float
    pitch: int
    pace: int


def people(variants: tuple[str, ...]) -> list[Person]:
    """Three people of each variant."""
    return [
        Person(f"{variant}/{tract}", variant, tract, pitch, pace)
        for variant in variants
        for tract, pitch, pace in PEOPLE_OF_VARIANT
    ]


def require() -> None:
    """Leave with a word of what to install where espeak-ng is missing."""
    if shutil.which("espeak-ng") is None:
        raise SystemExit("espeak-ng, which makes the voices, is missing: `apt-get install espeak-ng` (Debian, Ubuntu).")


def speak(person: Person, seconds: float, rng: Random) -> Sound:
    """About so many seconds of sentences in one voice, float32 at 8 kHz."""
    text = " ".join(SENTENCES[at] for at in rng.permutation(len(SENTENCES)))
    pitch = np.clip(round(person.pitch / person.tract + rng.normal(0, 2)), 0, 99)
    pace = round(person.pace / person.tract * rng.uniform(0.95, 1.05))
    how = ["espeak-ng", "-v", f"en-us+{person.variant}", "-p", str(pitch), "-s", str(pace), "--stdout"]
    wave = subprocess.run([*how, text], capture_output=True, check=True).stdout
    at = wave.find(b"data") + 8
    rate = int.from_bytes(wave[24:28], "little")
    sound = np.frombuffer(wave[at : at + (len(wave) - at) // 2 * 2], "<i2").astype(np.float32) / 32768
    # slower and deeper by the tract's factor, then played faster by it: formants move, pitch and pace stay
    factor = Fraction(RATE / (rate * person.tract)).limit_denominator(400)
    made = resample_poly(sound, factor.numerator, factor.denominator).astype(np.float32)[: round(seconds * RATE)]
    return level(made, -20.0)


def on_the_line(sound: Sound, rng: Random) -> Sound:
    """Through one of `LINES`, with noise 15 to 40 dB below the voice, at a level from -32 to -14 dBFS."""
    noise = rng.normal(0, 10 ** ((-20 - rng.uniform(15, 40)) / 20), len(sound)).astype(np.float32)
    loud = level(sound, -20.0) + noise
    return through(level(loud, rng.uniform(-32, -14)), LINES[rng.integers(len(LINES))])


def at_16_khz(sound: Sound) -> Sound:
    """As the pipeline's engines take it."""
    return np.asarray(resample_poly(sound, 2, 1), np.float32)
