"""Step 1 - synthesize the pseudo-speakers (espeak-ng + flite + festival), 16 kHz int16.

python synth.py data     # writes utts.npz + speakers.json
A pseudo-speaker is (engine, base voice/variant, accent, pitch, rate, formant shift). Formant shift f: synthesize
1/f slower and 1/f lower-pitched, then resample by f (what sox "speed" does), so formants move and the rest stays put.
Splits are made by BASE VOICE: no base voice/variant of a test speaker is heard in training.
"""

import json
import os
import random
import re
import subprocess
import sys
from fractions import Fraction
from multiprocessing import Pool

import numpy as np
from scipy.signal import resample_poly

OUT = sys.argv[1] if len(sys.argv) > 1 else "data"
UTTS = 26
VARIANTS = [
    "adam",
    "Alex",
    "Alicia",
    "Andrea",
    "Andy",
    "Annie",
    "antonio",
    "aunty",
    "belinda",
    "benjamin",
    "boris",
    "caleb",
    "david",
    "Denis",
    "Diogo",
    "ed",
    "edward",
    "edward2",
    "Gene",
    "Gene2",
    "Henrique",
    "Hugo",
    "iven",
    "iven2",
    "iven3",
    "iven4",
    "Jacky",
    "john",
    "kaukovalta",
    "Lee",
    "Linda",
    "Marcelo",
    "Marco",
    "Mario",
    "max",
    "Michael",
    "michel",
    "miguel",
    "Mike",
    "Nguyen",
    "pablo",
    "paul",
    "pedro",
    "quincy",
    "RicishayMax",
    "RicishayMax2",
    "RicishayMax3",
    "rob",
    "robert",
    "steph",
    "steph2",
    "steph3",
    "Storm",
    "Tweaky",
    "travis",
    "victor",
    "zac",
    "anika",
    "f2",
    "f3",
    "f4",
    "f5",
    "f1",
    "klatt",
    "klatt2",
    "klatt3",
    "klatt4",
    "m1",
    "m2",
    "m3",
    "m4",
    "m5",
    "m6",
    "m7",
    "m8",
    "norbert",
    "sandro",
    "shelby",
    "grandpa",
    "grandma",
]
HELD_VARIANTS = set(
    [
        "Andy",
        "Annie",
        "benjamin",
        "Denis",
        "ed",
        "Linda",
        "Marco",
        "michel",
        "f3",
        "f5",
        "klatt3",
        "m3",
        "m7",
        "steph2",
        "Diogo",
        "Alicia",
        "pablo",
        "norbert",
        "rob",
        "belinda",
    ]
)
ACCENTS = ["en-us", "en-gb", "en-gb-scotland", "en-gb-x-rp", "en-029", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en-us-nyc"]
FLITE = {"kal16": 110, "awb": 120, "slt": 175, "rms": 95}  # f0 means
FEST = {"kal_diphone": 1, "ked_diphone": 1, "cmu_us_slt_arctic_hts": 1}
HELD_FLITE, HELD_FEST = {"rms"}, {"ked_diphone"}

NAMES = [
    "John",
    "Mary",
    "Peter",
    "Susan",
    "Robert",
    "Linda",
    "David",
    "Karen",
    "Thomas",
    "Emily",
    "Carlos",
    "Fatima",
    "Henry",
    "Olivia",
    "Samir",
    "Julia",
]
CITIES = [
    "Boston",
    "Denver",
    "Portland",
    "Chicago",
    "Leeds",
    "Cardiff",
    "Austin",
    "Dublin",
    "Phoenix",
    "Toronto",
    "Madrid",
    "Bergen",
]
THINGS = [
    "invoice",
    "order",
    "subscription",
    "delivery",
    "router",
    "insurance policy",
    "appointment",
    "phone bill",
    "refund",
    "contract",
    "password",
    "booking",
    "credit card",
    "account",
    "replacement part",
    "warranty",
]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
T = """Hello, this is {n} calling about my {t}.|Good morning, thank you for calling, how can I help you today?|Yes, of course.
Okay.|Right.|Uh huh, I see.|Could you please give me your customer number?|Sure, it is {d} {d} {d} {d} {d}.
The {t} was supposed to arrive on {w}, but it never came.|Let me check that for you, just one moment please.
I have been waiting for more than {k} weeks now.|I am sorry to hear that.|Is there anything else I can do for you?
No, that is all, thank you very much.|My address is {k} {c} street, in {c}.|Can you spell your last name for me?
I would like to cancel my {t} as soon as possible.|We can send a technician on {w} at {k} o'clock.
That does not work for me, I am in {c} until {w}.|The total amount is {k} hundred and {k} dollars.
Did you receive the email that we sent last {w}?|No, I did not get any message from you.|Please hold the line while I transfer you to {n}.
I already spoke with {n} and {n} about this problem.|What is the best number to reach you?|You can call me back at {d} {d} {d}, {d} {d} {d} {d}.
It stopped working after the storm on {w}.|Have you tried turning it off and on again?|Yes, twice, and the red light is still blinking.
I understand your frustration, we will fix this today.|Thank you, {n}, I really appreciate your help.|Goodbye, have a nice day.
Actually, I have one more question about the {t}.|How much does the {t} cost per month?|If you pay before {w} there is no extra fee.
Perfect, let's do that.|Hmm, I am not sure about that.|My daughter {n} set up the {t} for me last year.|Is this call being recorded?
For quality purposes, all of our calls are recorded.|The weather in {c} has been terrible this week.|I moved from {c} to {c} in the spring.
We have a special offer on every new {t} this month.|I don't want any offer, I only want my {t}.|Alright then, I will write that down.
Your reference is {d} {d} {d}, please keep it.|Wait a second, let me find a pen.|Go ahead please.|Thanks a lot.|Exactly.|Oh, wonderful!""".replace(
    "\n", "|"
).split("|")


def sentence(r):
    out = " ".join(r.choice(T) for _ in range(r.choice([1, 1, 1, 2, 2])))
    for k, f in dict(
        n=lambda: r.choice(NAMES),
        t=lambda: r.choice(THINGS),
        c=lambda: r.choice(CITIES),
        w=lambda: r.choice(DAYS),
        d=lambda: str(r.randint(0, 9)),
        k=lambda: str(r.randint(2, 40)),
    ).items():
        out = re.sub(r"\{%s\}" % k, lambda m: f(), out)
    return out


def speakers():
    r, S = random.Random(7), []
    for v in VARIANTS:
        held = v in HELD_VARIANTS
        for i in range(1 if held else 2):
            S.append(
                dict(
                    engine="espeak",
                    voice=v,
                    accent=r.choice(ACCENTS),
                    pitch=r.randint(25, 75),
                    rate=r.randint(140, 190),
                    formant=round(r.uniform(0.88, 1.14), 3),
                    split="test" if held else "train",
                )
            )
    for v, f0 in FLITE.items():
        for i, f in enumerate([0.87, 0.93, 1.0, 1.07, 1.14] if v not in HELD_FLITE else [0.9, 1.0, 1.12]):
            S.append(
                dict(
                    engine="flite",
                    voice=v,
                    f0=round(f0 * f**1.5 * r.uniform(0.92, 1.08)),
                    rate=round(r.uniform(0.88, 1.12), 2),
                    formant=f,
                    split="test" if v in HELD_FLITE else "train",
                )
            )
    for v in FEST:
        for f in [0.9, 1.0, 1.1] if v not in HELD_FEST else [0.95, 1.08]:
            S.append(dict(engine="festival", voice=v, formant=f, split="test" if v in HELD_FEST else "train"))
    for i, s in enumerate(S):
        s["id"] = i
    return S


def read_wav(b):
    i = b.find(b"data") + 8
    sr = int.from_bytes(b[24:28], "little")
    x = np.frombuffer(b[i : i + (len(b) - i) // 2 * 2], "<i2").astype(np.float32)
    return x, sr


def to16k(x, sr, formant=1.0):
    fr = Fraction(16000 / (sr * formant)).limit_denominator(400)
    return resample_poly(x, fr.numerator, fr.denominator)


def festival_batch(voice, texts, d):
    os.makedirs(d, exist_ok=True)
    scm = f"(voice_{voice})\n" + "".join(
        f'(utt.save.wave (SynthText "{t}") "{d}/{i}.wav" \'riff)\n'.replace(
            "(SynthText", "(utt.synth (Utterance Text"
        ).replace('") "', '")) "')
        for i, t in enumerate(texts)
    )
    open(f"{d}/a.scm", "w").write(scm)
    subprocess.run(["festival", "-b", f"{d}/a.scm"], capture_output=True)
    return [open(f"{d}/{i}.wav", "rb").read() for i in range(len(texts))]


def build(s):
    r = random.Random(1000 + s["id"])
    out, f = [], s["formant"]
    texts = [sentence(r) for _ in range(UTTS)]
    if s["engine"] == "festival":
        raws = festival_batch(s["voice"], texts, f"{OUT}/fest{s['id']}")
    else:
        raws = []
        for t in texts:
            if s["engine"] == "espeak":
                p = max(0, min(99, round(s["pitch"] / f + r.gauss(0, 2))))
                c = [
                    "espeak-ng",
                    "-v",
                    f"{s['accent']}+{s['voice']}",
                    "-p",
                    str(p),
                    "-s",
                    str(round(s["rate"] / f * r.uniform(0.95, 1.05))),
                    "--stdout",
                    t,
                ]
                raws.append(subprocess.run(c, capture_output=True).stdout)
            else:
                w = f"{OUT}/fl{s['id']}.wav"
                c = [
                    "flite",
                    "-voice",
                    s["voice"],
                    "--setf",
                    f"int_f0_target_mean={s['f0'] / f:.1f}",
                    "--setf",
                    f"duration_stretch={s['rate'] * f * r.uniform(0.95, 1.05):.3f}",
                    "-t",
                    t,
                    "-o",
                    w,
                ]
                subprocess.run(c, capture_output=True)
                raws.append(open(w, "rb").read())
    for b in raws:
        x, sr = read_wav(b)
        if len(x) < sr * 0.2:
            continue
        x = to16k(x, sr, f)
        e = np.convolve(x**2, np.ones(320) / 320, "same")
        a = np.where(e > e.max() * 1e-4)[0]  # trim
        x = x[max(0, a[0] - 160) : a[-1] + 160]
        x = x / (np.sqrt(np.mean(x**2)) + 1e-9) * 2500  # common level, -22 dBFS
        out.append(np.clip(x, -32767, 32767).astype(np.int16))
    return s["id"], out


if __name__ == "__main__":
    S = speakers()
    print(len(S), "speakers", sum(s["split"] == "test" for s in S), "held out", flush=True)
    data = {}
    with Pool(2) as p:
        for n, (i, o) in enumerate(p.imap_unordered(build, S)):
            for j, x in enumerate(o):
                data[f"{i}_{j}"] = x
            if n % 20 == 0:
                print(n, i, len(o), flush=True)
    np.savez(f"{OUT}/utts.npz", **data)
    json.dump(S, open(f"{OUT}/speakers.json", "w"))
    print("minutes", sum(len(x) for x in data.values()) / 16000 / 60)
