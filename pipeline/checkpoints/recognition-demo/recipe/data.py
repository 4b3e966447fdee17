"""Training windows from the utterance store: packing, gaps, line simulation, log-mel, labels."""

import json
import random
import re

import numpy as np
import scipy.fft
import torch
from faster_whisper.feature_extractor import FeatureExtractor
from tokenizers import Tokenizer

import tok

SR = 8000
SNR_MIN = 15.0  # dB; train.py --snr-min
LANG_SHARES = (0.42, 0.29, 0.29)  # how often a window is English, Spanish, German; train.py --shares
CHARS = " abcdefghijklmnopqrstuvwxyz'áéíóúñüäöß"  # CTC classes 1..; 0 is blank
C2I = {c: i + 1 for i, c in enumerate(CHARS)}
N_CTC = len(CHARS) + 1
# log-mel of 8 kHz audio as faster-whisper computes it after resampling to 16 kHz: same window, hop and
# bins, twice the amplitude, nothing above 4 kHz
# phonemes of espeak-ng as frame targets; 0: silence and anything rare
PHONES = [
    "n",
    "t",
    "s",
    "a",
    "e",
    "m",
    "k",
    "l",
    "I",
    "r",
    "o",
    "@",
    "d",
    "f",
    "D",
    "aI",
    "i:",
    "E",
    "b",
    "p",
    "w",
    "z",
    "j",
    "i",
    "v",
    "3",
    "u:",
    "eI",
    "B",
    "C",
    "h",
    "g",
    "U",
    "V",
    "A:",
    "0",
    "N",
    "I2",
    "T",
    "u",
    "a#",
    "O",
    ";",
    "ts",
    "e:",
    "oU",
    "o:",
    "S",
    "O@",
    "R",
    "aU",
    "@2",
    "tS",
    "OY",
    "x",
    "Q",
    "O:",
    "dZ",
    "t#",
    "3:",
    "I#",
    "J^",
    "oI",
    "n^",
    "r-",
    "o@",
    "@L",
    "y",
    "e@",
    "aa",
    "y:",
    "R2",
    "eU",
    "W",
    "O2",
    "l^",
    "A@",
    "U@",
    "t[",
    "i@",
    "OI",
    "i@3",
    "Y:",
]
P2I = {p: i + 1 for i, p in enumerate(PHONES)}
N_PH = len(PHONES) + 1
MEL = torch.tensor(FeatureExtractor.get_mel_filters(16000, 400, 80).astype("float32"))[:, :101].contiguous()
HANN = torch.tensor(np.hanning(201)[:-1].astype("float32"))


def log_mel(x, extra_floor=0.0):
    """(B, n) at 8 kHz -> (B, 80, n/80) normalised log-mel; extra_floor: the file's loudest moment is
    elsewhere, this much (log10 power) above the window's."""
    s = torch.stft(x, 200, 80, window=HANN, center=True, pad_mode="reflect", return_complex=True)[..., :-1]
    m = MEL @ (s.abs() ** 2 * 4)
    m = m.clamp(min=1e-10).log10()
    mx = m.amax((1, 2), keepdim=True) + extra_floor
    return (torch.maximum(m, mx - 8) + 4) / 4


def mulaw(x):
    y = np.sign(x) * np.log1p(255 * np.abs(x)) / np.log(256)
    y = np.round(y * 127) / 127
    return np.sign(y) * (256 ** np.abs(y) - 1) / 255


MULAW = mulaw(np.arange(-32768, 32768) / 32768).astype(np.float32)  # 16-bit sample -> after mu-law


def _make_noise(n, rng):
    kind = rng.choice(["white", "pink", "brown", "hum", "tone", "white"])
    x = np.random.default_rng(rng.getrandbits(32)).standard_normal(n).astype(np.float32)
    t = np.arange(n) / SR
    if kind in ("pink", "brown"):
        X = np.fft.rfft(x)
        X /= np.maximum(np.arange(len(X)), 20 * n / SR) ** (0.5 if kind == "pink" else 1.0)
        x = np.fft.irfft(X, n)
        x /= x.std() + 1e-9
    elif kind == "hum":
        f = rng.choice([50, 60])
        x = 0.3 * x + sum(np.sin(2 * np.pi * f * k * t + k) for k in (1, 2, 3, 5, 7))
    elif kind == "tone":  # ring-back or dial tone, switched
        f = rng.uniform(350, 480)
        on = (t % rng.uniform(1, 5)) < rng.uniform(0.3, 2)
        x = 0.05 * x + (np.sin(2 * np.pi * f * t) + np.sin(2 * np.pi * (f + 40) * t)) * on
    return (x / (np.std(x) + 1e-9)).astype(np.float32), kind


_bank = []


def noise(n, rng):
    if not _bank:
        r = random.Random(11)
        _bank.extend(_make_noise(40 * SR, r) for _ in range(48))
    x, kind = rng.choice(_bank)
    a = rng.randrange(len(x) - n)
    return x[a : a + n], kind


def line(x, rng, speech=True):
    """Telephone line: band limit, level, noise, mu-law, 16-bit rounding."""
    n = len(x)
    nf = scipy.fft.next_fast_len(n, real=True)
    f = np.fft.rfftfreq(nf, 1 / SR).astype(np.float32)
    lo, hi = (1, 4000) if rng.random() < 0.15 else (rng.uniform(150, 350), rng.uniform(3000, 3800))
    tilt = rng.uniform(-0.7, 0.7)
    g = np.linspace(1, 4000, 101)  # the curve is smooth: compute 101 points, interpolate
    H = np.interp(f, g, 1 / (1 + (lo / g) ** 6) / (1 + (g / hi) ** 20) * (np.maximum(g, 50) / 1000) ** tilt).astype(
        np.float32
    )
    filt = lambda y: scipy.fft.irfft(scipy.fft.rfft(y, nf) * H, nf)[:n]
    if speech:
        x = filt(x)
        m = np.abs(x)
        peak = m.max()
        act = x[m > 0.02 * peak]
        rms = np.sqrt(np.mean(act**2)) if len(act) else 0.1
        nz, kind = noise(n, rng)
        snr = rng.uniform(22, 50) if kind == "tone" else rng.uniform(SNR_MIN, 50)
        x = x + nz * np.float32(rms * 10 ** (-snr / 20))
        x *= np.float32(10 ** rng.uniform(-1.3, -0.05) / (peak + 1e-9))
    else:
        r = rng.random()
        x = noise(n, rng)[0] if r < 0.8 else np.zeros(n, np.float32)
        if r > 0.3:
            x = filt(x)
        x = x / (np.abs(x).max() + 1e-9) * 10 ** rng.uniform(-3.5, -0.3)
    q = np.clip(np.round(x * 32768), -32768, 32767)
    if rng.random() < 0.5:
        return MULAW[q.astype(np.int32) + 32768]
    return q.astype(np.float32) / 32768


class Store:
    def __init__(self, work, part="train", utt="utt", voices=None):
        self.tk = Tokenizer.from_file(f"{work}/tokenizer.json")
        self.idx, self.pcm = [], []
        for k, u in enumerate(utt.split(",")):  # one or more utterance stores
            self.idx += [dict(e, store=k) for e in json.load(open(f"{work}/{u}/{part}.json"))]
            self.pcm.append(np.memmap(f"{work}/{u}/{part}.i16", np.int16, "r"))
        if voices:  # regular expression on the voice name
            self.idx = [e for e in self.idx if re.search(voices, e["voice"])]
        self.by = {l: [i for i, e in enumerate(self.idx) if e["lang"] == l] for l in ("en", "es", "de")}

    def audio(self, e):
        return self.pcm[e["store"]][e["off"] : e["off"] + e["n"]].astype(np.float32) / 32768

    def tokens(self, e):
        """[(id, start, end)] of an utterance: each word's tokens share its time by characters."""
        enc = self.tk.encode(" " + e["text"], add_special_tokens=False)
        words = e["words"]
        out, wi, pos = [], -1, 0
        text = " " + e["text"]
        starts = [i for i, c in enumerate(text) if c == " "]
        for i, (a, b) in zip(enc.ids, enc.offsets):
            w = min(max(0, sum(s <= a for s in starts) - 1), len(words) - 1)
            ws, we = words[w]
            c0 = starts[w]
            c1 = starts[w + 1] if w + 1 < len(starts) else len(text)
            f = (we - ws) / max(1, c1 - c0)
            out.append((i, ws + f * max(0, a - c0), ws + f * min(c1 - c0, b - c0)))
        return out

    def window(self, rng, T):
        """-> dict(x: 8 kHz audio of T s, content: samples before the zero padding, token input and targets,
        guides: (position, start, end) for the attention, ctc text, phoneme per frame)"""
        lang = rng.choices(["en", "es", "de"], LANG_SHARES)[0]
        L = tok.LANG[lang]
        ts = rng.random() < 0.55
        n = int(T * SR)
        if rng.random() < 0.05:
            c = n if rng.random() < 0.6 else int(rng.uniform(1, T) * SR)
            x = np.zeros(n, np.float32)
            x[:c] = line(x[:c], rng, speech=False)
            ids = [tok.SOT, L, tok.TRANSCRIBE] + ([tok.TS0] if ts else [tok.NOTS]) + [tok.EOT]
            tgt = [tok.NOSPEECH, -1, tok.TS0 if ts else -1, tok.EOT, -1]
            return dict(
                x=x, content=c, inp=ids, tgt=tgt, guide=[], ctc="", off=0, frames=np.zeros(int(T * 50), np.int64)
            )
        single = rng.random() < 0.3
        x = np.zeros(n, np.float32)
        fr = np.zeros(int(T * 50), np.int64)  # phoneme per 20 ms frame; -100: not known
        t = rng.choice([rng.uniform(0, 0.3), rng.uniform(0, 0.3), rng.uniform(0.2, 1.0), rng.uniform(0.5, 3.0)])
        segs, partial, longgap = [], None, rng.random() < 0.2
        while True:
            e = self.idx[rng.choice(self.by[lang])]
            dur = e["n"] / SR
            if t + dur > T - 0.05:
                if not segs and dur < T - 0.3:
                    t = rng.uniform(0, T - 0.1 - dur)
                elif not segs:
                    continue
                else:
                    if ts and not single and rng.random() < 0.7 and t < T - 0.15:
                        partial = (e, t)
                    break
            segs.append((e, t))
            t += dur + (rng.uniform(1.0, 6.0) if longgap and rng.random() < 0.6 else rng.uniform(0.2, 1.2))
            if single:
                break
        for e, s in segs + ([partial] if partial else []):
            a = self.audio(e) * 10 ** rng.uniform(-0.4, 0.0)
            i = int(s * SR)
            x[i : i + len(a)] += a[: n - i]
            ph = e.get("phones") or []
            if not ph:
                fr[int(s * 50) : int((s + len(a) / SR) * 50) + 1] = -100
            for (p, b), nx in zip(ph, [q[1] for q in ph[1:]] + [len(a) / SR]):
                fr[int(round((s + b) * 50)) : int(round((s + min(nx, len(a) / SR)) * 50))] = P2I.get(p, 0)
        end = segs[-1][1] + segs[-1][0]["n"] / SR
        if partial or (not single and rng.random() < 0.5):
            c = n
        else:
            c = min(n, int((end + rng.choice([0.03, 0.2, 0.5, 1.0, 2.0])) * SR))
        x[:c] = line(x[:c], rng)
        x[c:] = 0
        body, guide = [], []

        def put(i, a, b):
            body.append(i)
            guide.append((a, b))

        for e, s in segs:
            fuzzy = 0.3 if not e["voice"].startswith("espeak") else 0.06
            en = s + e["n"] / SR
            if ts:
                put(("t", s), s - 0.1, s + 0.3)
            for i, a, b in self.tokens(e):
                put(i, s + a - fuzzy, s + b + fuzzy)
            if ts:
                put(("t", en), en - 0.3, en + 0.1)
        if partial:
            put(("t", partial[1]), partial[1] - 0.1, partial[1] + 0.3)
        # short training windows sit at a random place of the 30 s position table
        off = 0 if T > 29 or rng.random() < 0.25 else rng.randint(0, 1500 - int(T * 50))
        tid = lambda s: tok.TS0 + min(1500, max(0, off + int(round(s * 50))))
        body = [tid(b[1]) if isinstance(b, tuple) else b for b in body]
        if ts and segs[0][1] > 1.0 and off == 0 and rng.random() < 0.5:
            body[0] = tok.TS0 + rng.randint(0, 50)  # decoding never starts later than 1.00 s
        prev = []
        if rng.random() < (0.3 if T > 29 else 0.1):
            prev = [tok.PREV]
            tt, k = 0.0, rng.randint(1, 9 if T > 29 else 2)
            for _ in range(k):
                e = self.idx[rng.choice(self.by[lang])]
                tk = [i for i, _, _ in self.tokens(e)]
                if ts:
                    e1 = tt + e["n"] / SR
                    tk = [tok.TS0 + int(min(29, tt) * 50)] + tk + [tok.TS0 + int(min(29.9, e1) * 50)]
                    tt = e1 + rng.uniform(0, 1)
                prev += tk
            prev = prev[:1] + prev[1:][-rng.randint(10, 223) :]
        head = [tok.SOT, L, tok.TRANSCRIBE] + ([] if ts else [tok.NOTS])
        seq = prev + head + body + [tok.EOT]
        seq = seq[:440]
        tgt = [-1] * len(prev) + seq[len(prev) + 1 :] + [-1]
        g0 = len(prev) + len(head) - 1
        guide = [(g0 + k, a, b) for k, (a, b) in enumerate(guide) if g0 + k < len(seq) - 1]
        ctc = " ".join(e["text"] for e, _ in segs).lower()
        return dict(
            x=x,
            content=c,
            inp=seq,
            tgt=tgt,
            guide=guide,
            off=off,
            ctc=ctc,
            frames=fr,
            ctc_end=int(partial[1] * SR) if partial else c,
        )

    def batch(self, rng, B, T):
        ws = [self.window(rng, T) for _ in range(B)]
        mel = log_mel(
            torch.tensor(np.stack([w["x"] for w in ws])),
            torch.tensor([[[rng.choice([0, 0, rng.uniform(0, 1.5)])]] for _ in ws]),
        )
        for k, w in enumerate(ws):
            mel[k, :, w["content"] // 80 :] = 0.0  # faster-whisper pads the normalised log-mel with zeros
        U = max(len(w["inp"]) for w in ws)
        F = int(T * 50)
        inp = torch.full((B, U), tok.compact(tok.EOT))
        tgt = torch.full((B, U), -100)
        gm, gw = [], []
        for k, w in enumerate(ws):
            inp[k, : len(w["inp"])] = torch.tensor([tok.compact(i) for i in w["inp"]])
            tgt[k, : len(w["tgt"])] = torch.tensor([tok.compact(i) if i >= 0 else -100 for i in w["tgt"]])
            for p, a, b in w["guide"]:
                gm.append((k, p))
                lo = min(F - 1, max(0, int(a * 50)))
                gw.append((lo, max(lo + 1, min(F, int(np.ceil(b * 50))))))
        ctc = [[C2I[c] for c in w["ctc"] if c in C2I] for w in ws]
        return dict(
            mel=mel.half(),
            inp=inp,
            tgt=tgt,
            off=torch.tensor([w["off"] for w in ws]),
            gm=torch.tensor(gm, dtype=torch.long).view(-1, 2),
            gw=torch.tensor(gw, dtype=torch.long).view(-1, 2),
            ctc=torch.tensor(sum(ctc, []), dtype=torch.long),
            ctc_n=torch.tensor([len(c) for c in ctc]),
            ph=torch.tensor(np.stack([w["frames"] for w in ws])),
            frames=torch.tensor([max(1, w.get("ctc_end", w["content"]) // 160) for w in ws]),
        )
