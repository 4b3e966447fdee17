"""Text to speech for the recipe: espeak-ng through ctypes (fast, gives word times), flite and festival as
subprocesses (no word times).  All return 8 kHz float32 mono and word start times."""

import ctypes as C
import os
import re
import subprocess
import tempfile
from math import gcd

import numpy as np
import soundfile as sf
from scipy.signal import resample_poly

SR = 8000


class _Id(C.Union):
    _fields_ = [("number", C.c_int), ("name", C.c_char_p), ("string", C.c_char * 8)]


class _Event(C.Structure):
    _fields_ = [
        ("type", C.c_int),
        ("uid", C.c_uint),
        ("text_position", C.c_int),
        ("length", C.c_int),
        ("audio_position", C.c_int),
        ("sample", C.c_int),
        ("user", C.c_void_p),
        ("id", _Id),
    ]


_CB = C.CFUNCTYPE(C.c_int, C.POINTER(C.c_short), C.c_int, C.POINTER(_Event))
_state = {}


def _espeak():
    if "lib" not in _state:
        lib = C.CDLL("libespeak-ng.so.1")
        _state["rate"] = lib.espeak_Initialize(2, 0, None, 1)  # 1: phoneme events
        chunks, events, phones = [], [], []

        def cb(wav, n, ev):
            if wav and n > 0:
                chunks.append(np.ctypeslib.as_array(wav, (n,)).copy())
            i = 0
            while ev[i].type != 0:
                if ev[i].type == 1:
                    events.append((ev[i].text_position, ev[i].length, ev[i].audio_position / 1000))
                elif ev[i].type == 7:
                    phones.append((ev[i].id.string.decode("utf-8", "ignore"), ev[i].audio_position / 1000))
                i += 1
            return 0

        _state.update(lib=lib, chunks=chunks, events=events, phones=phones, cb=_CB(cb))
        lib.espeak_SetSynthCallback(_state["cb"])
    return _state


def last_phones():
    """[(phoneme, start)] of the latest espeak() call, exact: the synthesiser's own."""
    return _state["last_phones"]


def to8k(x, rate):
    if rate != SR:
        g = gcd(SR, rate)
        x = resample_poly(x, SR // g, rate // g)
    return x.astype(np.float32)


def trim(x, thr=0.01, keep=0.02):
    """Cut leading/trailing silence; returns (x, seconds cut in front)."""
    m = np.abs(x) > thr * np.abs(x).max()
    i = np.flatnonzero(m)
    a = max(0, i[0] - int(keep * SR))
    b = min(len(x), i[-1] + int(keep * SR))
    return x[a:b], a / SR


def word_times(text, total, starts=None):
    """[(start, end)] per space-separated word; missing starts are interpolated over characters."""
    pos = [m.start() for m in re.finditer(r"\S+", text)]
    n = len(pos)
    known = {0: 0.0, n: total}
    for ch, t in starts or []:
        w = max((k for k, p in enumerate(pos) if p <= ch), default=0)
        if 0 < w < n and w not in known and 0 < t < total:
            known[w] = t
    keys = sorted(known)
    keys = [k for j, k in enumerate(keys) if j == 0 or known[k] >= max(known[q] for q in keys[:j])]
    p2 = pos + [len(text)]
    st = np.interp(p2, [p2[k] for k in keys], [known[k] for k in keys])
    return [(float(st[k]), float(st[k + 1])) for k in range(n)]


def espeak(text, voice, rate=165, pitch=50, prange=50):
    s = _espeak()
    lib = s["lib"]
    s["chunks"].clear(), s["events"].clear(), s["phones"].clear()
    if lib.espeak_SetVoiceByName(voice.encode()) != 0:
        raise ValueError(voice)
    for k, v in ((1, rate), (2, 100), (3, pitch), (4, prange)):
        lib.espeak_SetParameter(k, v, 0)
    b = text.encode() + b"\0"
    lib.espeak_Synth(b, len(b), 0, 1, 0, 1, None, None)
    x = to8k(np.concatenate(s["chunks"]) / 32768.0, s["rate"])
    ev = list(s["events"])
    x, cut = trim(x)
    starts = [(p - 1, t - cut) for p, _, t in ev]
    s["last_phones"] = [(p, round(t - cut, 3)) for p, t in s["phones"]]
    return x, word_times(text, len(x) / SR, starts)


def _run(cmd, text=None):
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, "o.wav")
        subprocess.run(
            [c if c != "@OUT" else out for c in cmd],
            check=True,
            capture_output=True,
            input=text.encode() if text else None,
        )
        x, r = sf.read(out, dtype="float32")
    return trim(to8k(x, r))[0]


def flite(text, voice, stretch=1.0, f0=None):
    cmd = ["flite", "-voice", voice, "--setf", f"duration_stretch={stretch}"]
    if f0:
        cmd += ["--setf", f"int_f0_target_mean={f0}"]
    x = _run(cmd + ["-t", text, "-o", "@OUT"])
    return x, word_times(text, len(x) / SR)


def festival(text, voice):
    x = _run(["text2wave", "-eval", f"(voice_{voice})", "-o", "@OUT"], text)
    return x, word_times(text, len(x) / SR)


_V = [
    "m1",
    "m2",
    "m3",
    "m4",
    "m5",
    "m6",
    "m7",
    "f1",
    "f2",
    "f3",
    "f5",
    "klatt",
    "klatt2",
    "klatt4",
    "adam",
    "Alex",
    "Alicia",
    "Andy",
    "Annie",
    "belinda",
    "boris",
    "caleb",
    "david",
    "ed",
    "edward",
    "grandma",
    "grandpa",
    "Gene",
    "linda",
    "marcelo",
    "Mike",
    "norbert",
    "pablo",
    "paul",
    "rob",
    "robert",
    "shelby",
    "steph",
    "travis",
    "victor",
    "zac",
    "max",
    "john",
    "Lee",
    "anika",
    "Denis",
]
TRAIN_VARIANTS = _V + ["m1", "m2", "m3", "m4", "m5", "f1", "f2", "f3", "f5"] * 2
HELD_VARIANTS = ["m8", "f4", "Andrea", "Michael", "quincy", "sandro"]
BASE = {
    "en": ["gmw/en-US"] * 5 + ["gmw/en"] * 3 + ["gmw/en-GB-x-rp", "gmw/en-US-nyc", "gmw/en-029"],
    "es": ["roa/es", "roa/es-419"],
    "de": ["gmw/de"],
}


# The voices of the sample calls; FEW_VOICES=1 in the environment makes a store of these alone (see run.sh, last stages).
FEW_BASES = ("gmw/en-US", "gmw/en", "roa/es", "roa/es-419", "gmw/de")
FEW_VARIANTS = ("f2", "f3", "m1", "m3")
FEW = bool(os.environ.get("FEW_VOICES"))


def random_espeak(text, lang, rng, held=False):
    few = FEW and not held
    bases = [base for base in BASE[lang] if base in FEW_BASES] if few else BASE[lang]
    v = rng.choice(bases) + "+" + rng.choice(HELD_VARIANTS if held else FEW_VARIANTS if few else TRAIN_VARIANTS)
    rate, pitch = rng.randint(135, 195), rng.randint(25, 75)
    x, w = espeak(text, v, rate, pitch, rng.randint(35, 65))
    return x, w, f"espeak:{v}:{rate}:{pitch}"


def random_flite(text, rng):
    v = rng.choice(["slt", "rms"] if FEW else ["slt", "rms", "awb", "kal16", "slt", "rms"])
    st = round(rng.uniform(0.85, 1.15), 2)
    f0 = {"slt": 170, "rms": 100, "awb": 130, "kal16": 110}[v] * rng.uniform(0.85, 1.2)
    x, w = flite(text, v, st, int(f0))
    return x, w, f"flite:{v}:{st}:{int(f0)}"
