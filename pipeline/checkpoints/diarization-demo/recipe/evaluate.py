"""Step 6 - held-out evaluation through the real pipeline.

python evaluate.py make  DATA CALLS     # write 8 kHz wavs + rttm: dev (tuning) and test, disjoint base voices, none in training
python evaluate.py extract CALLS       # segmentation + embeddings of all calls, cached; RTF
python evaluate.py tune  CALLS          # grid over clustering parameters on dev -> CALLS/best.json
python evaluate.py test  CALLS          # DER / speaker count / speed on test
python evaluate.py eer   DATA CALLS     # voiceprints
python evaluate.py real  DIR...         # real meeting recordings
"""

import contextlib
import glob
import io
import itertools
import json
import os
import pickle
import sys
import time
import warnings
import wave

import numpy as np
import torch
from pyannote.core import Annotation, Segment, Timeline
from pyannote.database.util import load_rttm
from pyannote.metrics.diarization import DiarizationErrorRate

from diarize import load_pipeline, load_wav

warnings.filterwarnings("ignore", message=".*uem.*")
torch.set_num_threads(1)
DEV = {"Andy", "Annie", "benjamin", "Denis", "ed", "Linda", "Marco", "michel", "f3", "f5", "klatt3", "ked_diphone"}


def bank(data, which):
    from sim import Bank

    b = Bank(data, "test")
    keep = [i for i, s in enumerate(b.spk) if (s["voice"] in DEV) == (which == "dev")]
    for k in ("spk", "utts", "act", "base"):
        setattr(b, k, [getattr(b, k)[i] for i in keep])
    return b


def save_wav(path, x, sr):
    with wave.open(path, "wb") as w:
        w.setnchannels(1)
        w.setsampwidth(2)
        w.setframerate(sr)
        w.writeframes((np.clip(x, -1, 1) * 32767).astype("<i2").tobytes())


def rttm(lab, names, uri):
    ann = Annotation(uri=uri)
    for k, n in enumerate(names):
        d = np.diff(np.r_[0, lab[:, k].astype(int), 0])
        for i, (a, b) in enumerate(zip(np.where(d == 1)[0], np.where(d == -1)[0])):
            if b - a >= 5:
                ann[Segment(a / 100, b / 100), f"{k}_{i}"] = n
    return ann


def make(data, calls):
    from scipy.signal import resample_poly

    from sim import channel, dialogue

    os.makedirs(calls, exist_ok=True)
    for which, seed, plan in (
        ("dev", 11, [(2, 45)] * 8 + [(2, 90)] * 4 + [(1, 40)] * 2 + [(3, 60)] * 2),
        ("test", 22, [(2, 30)] * 8 + [(2, 60)] * 8 + [(2, 90)] * 6 + [(2, 120)] * 6 + [(1, 40)] * 4 + [(3, 60)] * 4),
    ):
        b, r = bank(data, which), np.random.default_rng(seed)
        print(which, len(b.spk), "voices", sorted({s["voice"] for s in b.spk}))
        for i, (n, sec) in enumerate(plan):
            spks = b.pick(r, n)
            x, lab = dialogue(r, b, spks, sec, overlap=0.15)
            x = resample_poly(channel(r, x, narrow=True, snr=r.uniform(15, 30)), 1, 2)
            uri = f"{which}_{n}spk_{sec}s_{i:02d}"
            save_wav(f"{calls}/{uri}.wav", x, 8000)
            with open(f"{calls}/{uri}.rttm", "w") as f:
                rttm(lab, [f"v{b.spk[s]['id']}" for s in spks], uri).write_rttm(f)


def load(calls, which=""):
    refs = {}
    for f in glob.glob(f"{calls}/*.rttm"):
        refs.update(load_rttm(f))
    for w in sorted(glob.glob(f"{calls}/{which}*.wav")):
        f = load_wav(w)
        if f["uri"] in refs:
            f.update(wav=w)
            c = cache_name(w)
            if os.path.exists(c):
                f.update(pickle.load(open(c, "rb")))
            yield f, refs[f["uri"]], f["waveform"].shape[1] / f["sample_rate"]


def cache_name(w):
    return f"cache/{os.path.basename(os.path.dirname(w))}_{os.path.basename(w)}.pkl"


def extract(calls, which=""):
    """real pipeline once per file, in pyannote's own "training" mode: segmentation and embeddings are kept in the file dict
    (speaker_diarization.py:349, :390), so that the clustering variants below cost nothing. Also measures speed."""
    os.makedirs("cache", exist_ok=True)
    p, cpu, aud = load_pipeline(), 0, 0
    p.training = True
    for f, ref, d in load(calls, which):
        if "cpu" in f:
            cpu += f["cpu"]
            aud += d
            continue
        t = time.process_time()
        p(f)
        t = time.process_time() - t
        cpu += t
        aud += d
        pickle.dump(
            {**{k: v for k, v in f.items() if k.startswith("training_cache")}, "cpu": t},
            open(cache_name(f["wav"]), "wb"),
        )
    print(f"{calls} {which}: {aud:.0f} s of audio, RTF {cpu / aud:.3f} cpu s per audio s (1 thread)")


def run(p, f, **kw):
    p.training = True
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        return p(f, **kw)


def der(pairs, collar, skip=False):
    m = DiarizationErrorRate(collar=collar, skip_overlap=skip)
    for ref, hyp, uem in pairs:
        m(ref, hyp, uem=uem)
    d = m[:]
    t = d["total"] or 1
    return dict(der=abs(m), miss=d["missed detection"] / t, fa=d["false alarm"] / t, conf=d["confusion"] / t)


def fmt(d):
    return "DER {der:.1%} (miss {miss:.1%} fa {fa:.1%} conf {conf:.1%})".format(**d)


GRID = {
    "ahc": [
        dict(method="centroid", threshold=round(float(t), 3), min_cluster_size=m)
        for t in np.arange(0.4, 1.25, 0.1)
        for m in (8,)
    ],
    "vbx": [dict(threshold=t, Fa=a, Fb=b) for t in (0.6, 0.8) for a in (0.07, 0.2) for b in (0.8, 2.0, 6.0)],
}


def tune(calls):
    files, best = list(load(calls, "dev")), {}
    for kind, grid in GRID.items():
        p, res = load_pipeline(clustering=kind), []
        for g in grid:
            p.instantiate({"segmentation": {"min_duration_off": 0.0}, "clustering": g})
            pairs, ok = [], 0
            for f, ref, d in files:
                hyp = run(p, f).speaker_diarization
                pairs.append((ref, hyp, Timeline([Segment(0, d)])))
                ok += len(hyp.labels()) == len(ref.labels())
            res.append((der(pairs, 0.25)["der"], ok, g))
            if kind == "ahc" and g["min_cluster_size"] == 8:
                print(kind, g["threshold"], f"{res[-1][0]:.3f} count {ok}/{len(files)}")
        m = min(r[0] for r in res)
        ties = sorted(
            (r for r in res if r[0] <= m + 0.003), key=lambda r: r[2]["threshold"]
        )  # middle of the flat optimum
        c = ties[len(ties) // 2]
        print(
            kind,
            f"best {m:.3f}, {len(ties)} of {len(res)} settings within 0.3 points; chosen {c[2]} DER {c[0]:.3f} count {c[1]}/{len(files)}",
            flush=True,
        )
        best[kind] = c[2]
    json.dump(best, open(f"{calls}/best.json", "w"), indent=1)


def report(title, v):
    c = np.mean([len(h.labels()) == len(r.labels()) for r, h, _ in v])
    print(
        f"{title} n={len(v)}  collar .25 {fmt(der(v, 0.25))} | collar 0 {fmt(der(v, 0))} | skip_overlap .25 {der(v, 0.25, True)['der']:.1%} | count {c:.0%}"
    )


def trivial(v):
    out = []
    for ref, _, u in v:
        a = Annotation()
        for s in ref.get_timeline().support():
            a[s] = "x"
        out.append((ref, a, u))
    return out


def test(calls):
    files = list(load(calls, "test"))
    for kind in ("ahc", "vbx"):
        p = load_pipeline(clustering=kind)
        for forced in (False, True):
            rows = {}
            for f, ref, d in files:
                n = len(ref.labels())
                out = run(p, f, num_speakers=n if forced else None)
                rows.setdefault((n, round(d)), []).append((ref, out.speaker_diarization, Timeline([Segment(0, d)])))
            print(f"\n== {kind} num_speakers={'given' if forced else 'auto'}")
            for k, v in sorted(rows.items()):
                report(f"{k[0]} spk {k[1]:4d}s", v)
            two = sum([v for k, v in rows.items() if k[0] == 2], [])
            report("ALL 2-spk", two)
            if not forced:
                print(
                    "  worst 2-spk files:",
                    sorted(
                        ((round(der([x], 0.25)["der"], 3), x[0].uri, len(x[1].labels())) for x in two), reverse=True
                    )[:5],
                )
    report("trivial (oracle speech, one speaker, 2-spk calls)", trivial(two))


def eer(same, diff):
    same, diff = np.sort(same), np.sort(diff)
    th = np.unique(np.r_[same, diff])
    fr = np.searchsorted(same, th) / len(same)
    fa = 1 - np.searchsorted(diff, th) / len(diff)
    i = np.argmin(np.abs(fr - fa))
    return (fr[i] + fa[i]) / 2, th[i]


def cos(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def eers(data, calls, *_):
    from sim import channel, dialogue

    p = load_pipeline()
    m = p._embedding.model_
    for which in ("dev", "test"):
        b, r = bank(data, which), np.random.default_rng(3)
        for sec in (3, 10, 30) if "prints" not in sys.argv else ():
            E, Y = [], []
            for s in range(len(b.spk)):
                for _ in range(6):  # 6 "calls": other words, other line, other noise
                    x, lab = dialogue(r, b, [s], sec)
                    x = torch.from_numpy(channel(r, x, narrow=True, snr=r.uniform(12, 30)))[None]
                    x = m.audio.downmix_and_resample(x, 16000)[0][None]
                    E.append(p._embedding(x, masks=torch.from_numpy(lab.T.astype(np.float32)))[0])
                    Y.append(s)
            pairs = [
                (cos(E[i], E[j]), Y[i] == Y[j], b.base[Y[i]] == b.base[Y[j]])
                for i, j in itertools.combinations(range(len(E)), 2)
            ]
            same = [c for c, s, _ in pairs if s]
            diff = [c for c, s, _ in pairs if not s]
            far = [c for c, s, t in pairs if not s and not t]
            e, th = eer(same, diff)
            e2, th2 = eer(same, far)
            print(
                f"{which} oracle speech {sec:2d}s: {len(b.spk)} voices EER {e:.1%} @cos {th:.2f} (other base voice only: {e2:.1%}); same {np.mean(same):.2f}+-{np.std(same):.2f} diff {np.mean(diff):.2f}+-{np.std(diff):.2f}",
                flush=True,
            )
    print(flush=True)
    for which in ("test",) if "oracle" not in sys.argv else ():
        E, Y = [], []
        for f, ref, d in load(calls, which):
            if len(ref.labels()) != 2:
                continue
            out = run(p, f)
            mp = DiarizationErrorRate().optimal_mapping(ref, out.speaker_diarization, uem=Timeline([Segment(0, d)]))
            for k, l in enumerate(out.speaker_diarization.labels()):
                if l in mp and np.linalg.norm(out.speaker_embeddings[k]) > 0:
                    E.append(out.speaker_embeddings[k])
                    Y.append((mp[l], f["uri"]))
        P = [(cos(E[i], E[j]), Y[i][0] == Y[j][0]) for i, j in itertools.combinations(range(len(E)), 2)]
        same, diff = [c for c, s in P if s], [c for c, s in P if not s]
        e, th = eer(same, diff)
        print(
            f"{which} pipeline speaker_embeddings across calls: {len(E)} prints, {len(same)} same / {len(diff)} different pairs, EER {e:.1%} @cos {th:.2f}; same {np.mean(same):.2f} diff {np.mean(diff):.2f}"
        )


def real(*dirs):
    files = [x for d in dirs for x in load(d)]
    for kind in ("ahc", "vbx"):
        p = load_pipeline(clustering=kind)
        for forced in (False, True):
            pairs = []
            for f, ref, d in files:
                out = run(p, f, num_speakers=len(ref.labels()) if forced else None).speaker_diarization
                pairs.append((ref, out, Timeline([Segment(0, d)])))
                if not forced and kind == "ahc":
                    print(
                        f["uri"],
                        f"{d:.0f}s ref {len(ref.labels())} spk hyp {len(out.labels())}",
                        fmt(der(pairs[-1:], 0)),
                    )
            report(f"== real {kind} num_speakers={'given' if forced else 'auto'}", pairs)
            report("   sample.wav only", [x for x in pairs if x[0].uri == "sample"])
    report("trivial (oracle speech, one speaker)", trivial(pairs))


class CpuTiming:
    """progress hook that keeps process time per step"""

    def __init__(self):
        self.t, self.last, self.first = {}, time.process_time(), None

    def __call__(self, step, art, file=None, total=None, completed=None):
        now = time.process_time()
        self.t[step] = self.t.get(step, 0) + now - self.last
        self.last = now


def profile(p, sec, x=None):
    f = {"waveform": torch.randn(1, sec * 8000) * 0.05 if x is None else x, "sample_rate": 8000, "uri": "u"}
    t = time.process_time()
    h = CpuTiming()
    out = p(f, hook=h)
    tot = time.process_time() - t
    d = dict(h.t)
    d["clustering+reconstruct"] = d.pop("discrete_diarization", 0)
    d["annotation"] = tot - sum(d.values())
    return tot, {k: round(v, 2) for k, v in d.items()}


if __name__ == "__main__":
    {"make": make, "extract": extract, "tune": tune, "test": test, "eer": eers, "real": real}[sys.argv[1]](
        *sys.argv[2:]
    )
