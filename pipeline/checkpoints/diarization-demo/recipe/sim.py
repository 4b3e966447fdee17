"""Step 2 - dialogue simulator (shared by training and evaluation). Everything at 16 kHz, labels at 10 ms."""

import json

import numpy as np
import scipy.fft as sfft

SR, HOP = 16000, 160


def activity(x):
    """10 ms speech activity of one clean utterance: energy > -38 dB of its loud parts, gaps < 250 ms closed."""
    n = len(x) // HOP
    e = (x[: n * HOP].astype(np.float32).reshape(n, HOP) ** 2).mean(1)
    e = np.convolve(e, np.ones(3) / 3, "same")
    a = e > np.percentile(e, 95) * 10**-3.8
    on = np.where(a)[0]
    if len(on) == 0:
        return a
    for p, q in zip(on[:-1], on[1:]):
        if 1 < q - p <= 25:
            a[p:q] = True
    return a


class Bank:
    def __init__(self, path, split):
        S = json.load(open(f"{path}/speakers.json"))
        z = np.load(f"{path}/utts.npz")
        self.spk = [s for s in S if s["split"] == split]
        keys = {}
        for k in z.files:
            keys.setdefault(int(k.split("_")[0]), []).append(k)
        self.utts = [[z[k] for k in sorted(keys[s["id"]], key=lambda k: int(k.split("_")[1]))] for s in self.spk]
        self.act = [[activity(u) for u in U] for U in self.utts]
        self.base = [(s["engine"], s["voice"]) for s in self.spk]

    def pick(self, r, n):
        """n pseudo-speakers that do not share a base voice"""
        while True:
            k = r.choice(len(self.spk), n, replace=False)
            if len({self.base[i] for i in k}) == n:
                return [int(i) for i in k]


def place(r, bank, spk, T, labels, audio, t, s, gain, maxlen):
    j = r.integers(len(bank.utts[spk]))
    u, a = bank.utts[spk][j], bank.act[spk][j]
    a0 = 0
    n = len(u)
    if n > maxlen:
        n = int(maxlen)
    if t < 0:
        a0, n, t = -t, n + t, 0
    if n <= HOP or t >= T:
        return
    n = min(n, T - t)
    audio[t : t + n] += gain * u[a0 : a0 + n]
    f, g, m = t // HOP, a0 // HOP, n // HOP
    m = min(m, labels.shape[0] - f, len(a) - g)
    labels[f : f + m, s] |= a[g : g + m]


def dialogue(r, bank, spks, seconds, overlap=0.18, backchannel=0.12):
    """clean mix, labels (frames, len(spks)). One speaker = a monologue with pauses."""
    T = int(seconds * SR)
    audio, labels = np.zeros(T, np.float32), np.zeros((T // HOP, len(spks)), bool)
    gains = 10 ** (r.uniform(-8, 0, len(spks)) / 20)
    t = -int(r.uniform(0, 3) * SR) if r.random() < 0.7 else int(r.uniform(0, 1.5) * SR)
    s = int(r.integers(len(spks)))
    while t < T:
        j = r.integers(len(bank.utts[spks[s]]))
        u = bank.utts[spks[s]][j]
        n = len(u)
        if r.random() < 0.3:
            n = min(n, int(r.uniform(0.5, 2.5) * SR))
        rs = np.random.default_rng(r.integers(1 << 31))
        # draw the same utterance again inside place() would be random; place explicitly
        a = bank.act[spks[s]][j]
        st, off = t, 0
        if st < 0:
            off, st = -st, 0
        m = min(n - off, T - st)
        if m > HOP:
            audio[st : st + m] += gains[s] * u[off : off + m]
            f, g, k = st // HOP, off // HOP, m // HOP
            k = min(k, labels.shape[0] - f, len(a) - g)
            if k > 0:
                labels[f : f + k, s] |= a[g : g + k]
        if len(spks) > 1 and n > 2.5 * SR and r.random() < backchannel:
            o = int(r.choice([i for i in range(len(spks)) if i != s]))
            place(
                rs,
                bank,
                spks[o],
                T,
                labels,
                audio,
                t + int(r.uniform(0.3, 0.7) * n),
                o,
                gains[o],
                r.uniform(0.4, 1.0) * SR,
            )
        t += n
        if len(spks) == 1 or r.random() < 0.2:
            t += int(r.exponential(0.5) * SR)
            continue
        s = int(r.choice([i for i in range(len(spks)) if i != s]))
        t += (
            -int(r.uniform(0.1, 1.2) * SR)
            if r.random() < overlap
            else int((0.05 + r.exponential(0.45 if r.random() < 0.85 else 2.0)) * SR)
        )
    # a turn may overlap with a third one: keep at most 2 simultaneous speakers in the labels
    return audio, labels


def _noise(r, n, c):
    k = np.fft.rfftfreq(n, 1 / SR)
    w = np.fft.rfft(r.standard_normal(n))
    if c == "pink":
        w /= np.sqrt(np.maximum(k, 20))
    elif c == "brown":
        w /= np.maximum(k, 60)
    x = np.fft.irfft(w, n)
    x /= x.std() + 1e-9
    if c == "hum":
        x = 0.5 * x + np.sin(2 * np.pi * 50 * np.arange(n) / SR) * 1.2
    return x.astype(np.float32)


_POOL = []


def noise(r, n):
    if not _POOL:
        g = np.random.default_rng(99)
        _POOL.extend(_noise(g, 90 * SR, c) for c in ("white", "pink", "hum", "brown"))
    p = _POOL[r.integers(4)]
    if n >= len(p):
        p = np.tile(p, n // len(p) + 2)
    o = int(r.integers(len(p) - n))
    return p[o : o + n]


def mulaw(x):
    y = np.sign(x) * np.log1p(255 * np.abs(x)) / np.log(256)
    y = np.round(y * 127) / 127
    return (np.sign(y) * ((256 ** np.abs(y) - 1) / 255)).astype(np.float32)


def channel(r, x, narrow=None, snr=None):
    """telephone channel: random EQ tilt + band limits (8 kHz telephony or wide-band), noise, mu-law, level"""
    n = len(x)
    x = x / 32768.0
    narrow = r.random() < 0.75 if narrow is None else narrow
    snr = r.uniform(10, 35) if snr is None else snr
    p = np.sqrt(np.mean(x**2)) + 1e-6
    x = x + noise(r, n) * p * 10 ** (-snr / 20)
    k = np.fft.rfftfreq(n, 1 / SR).astype(np.float32)
    lo, hi = (r.uniform(80, 330), r.uniform(3200, 3800)) if narrow else (r.uniform(40, 120), r.uniform(5000, 7900))
    g = 1 / (1 + (lo / np.maximum(k, 10)) ** 8) / (1 + np.minimum(k / hi, 5) ** 24)
    knots = np.array([0, 300, 700, 1500, 2500, 3500, 8000.0])
    g = g * 10 ** (np.interp(k, knots, r.normal(0, 2.5, len(knots))) / 20)
    x = sfft.irfft(sfft.rfft(x.astype(np.float32)) * g.astype(np.float32), n)
    x = x / (np.abs(x).max() + 1e-6) * 10 ** (r.uniform(-18, -0.5) / 20)
    if narrow and r.random() < 0.6:
        x = mulaw(x)
    return x.astype(np.float32)
