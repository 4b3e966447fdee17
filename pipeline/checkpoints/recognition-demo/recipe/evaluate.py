"""Measure a converted model with the real faster-whisper.  usage: evaluate.py WORK MODELDIR [n_sentences] [compute_type]
Sentences are held out; groups en/es/de use espeak variants that training never saw, en_festival_* an engine
it never saw, *_known_voices and the calls use espeak variants of the training set at new rates and pitches."""

import json
import random
import re
import sys
import time

import jiwer
import numpy as np
import torch
from faster_whisper import BatchedInferencePipeline, WhisperModel
from scipy.signal import resample_poly

import data
import grammar
import tts

SR = 8000


def norm(s):
    return " ".join(re.sub(r"[^\w' ]", " ", s.lower().replace("-", " ")).split())


def wer(refs, hyps):
    """pooled word error rate; text is lower-cased without punctuation"""
    r, h = [norm(x) for x in refs], [norm(x) for x in hyps]
    o = jiwer.process_words(r, h)
    return round(100 * (o.substitutions + o.deletions + o.insertions) / max(1, sum(len(x.split()) for x in r)), 2)


def phone(x, seed, snr=30.0, law=True):
    """A fixed telephone line: 300-3400 Hz, noise, mu-law; returns 16 kHz float32."""
    nf = len(x)
    f = np.fft.rfftfreq(nf, 1 / SR)
    x = np.fft.irfft(np.fft.rfft(x) / (1 + (300 / np.maximum(f, 1)) ** 8) / (1 + (f / 3400) ** 30), nf)
    act = x[np.abs(x) > 0.02 * np.abs(x).max()]
    rms = np.sqrt(np.mean(act**2)) if len(act) else 0.05
    x = x + np.random.default_rng(seed).standard_normal(nf) * rms * 10 ** (-snr / 20)
    x = 0.5 * x / np.abs(x).max()
    if law:
        x = data.mulaw(x)
    return resample_poly(x, 2, 1).astype(np.float32)


def make_call(seed, lang="en", seconds=75, gap=(0.3, 1.2), held=False):
    """Two voices in turn, new sentences -> (left, right) at 8 kHz and [(channel, start, end, text, words)]"""
    rng = random.Random(seed)
    va, vb = (
        rng.sample(tts.HELD_VARIANTS, 2) if held else (rng.choice(["f1", "f2", "f3"]), rng.choice(["m1", "m2", "m3"]))
    )
    voice = [rng.choice(tts.BASE[lang]) + "+" + v for v in (va, vb)]
    par = [(rng.randint(145, 180), rng.randint(30, 70)) for _ in voice]
    ch = np.zeros((2, int((seconds + 15) * SR)), np.float32)
    t, k, segs = 0.4, 0, []
    while t < seconds:
        text = grammar.sentence(lang, rng, salad=0)
        x, w = tts.espeak(text, voice[k], *par[k])
        x = x / np.abs(x).max() * (0.6 if k == 0 else 0.4)
        i = int(t * SR)
        ch[k, i : i + len(x)] += x
        segs.append((k, t, t + len(x) / SR, text, [(t + a, t + b) for a, b in w]))
        t += len(x) / SR + rng.uniform(*gap)
        if rng.random() < 0.7:
            k = 1 - k
    n = int((segs[-1][2] + 0.5) * SR)
    return ch[:, :n], segs


def main():
    work, mdir = sys.argv[1:3]
    N = int(sys.argv[3]) if len(sys.argv) > 3 else 60
    ct = sys.argv[4] if len(sys.argv) > 4 else "int8"
    torch.set_num_threads(1)
    m = WhisperModel(mdir, device="cpu", compute_type=ct, cpu_threads=1)
    res = {"compute_type": ct}
    st = data.Store(work, "dev")
    groups = {
        "en_known_voices": [],
        "es_known_voices": [],
        "de_known_voices": [],
        "en": [],
        "es": [],
        "de": [],
        "en_festival_kal": [],
        "en_festival_slt": [],
    }
    for e in st.idx:
        v = e["voice"]
        g = e["lang"] if v.startswith("espeak") else ("en_festival_kal" if "kal" in v else "en_festival_slt")
        groups[g].append(e)
    rng = random.Random(5)
    seen = {e["text"] for e in data.Store(work, "train").idx}
    for lang in ("en", "es", "de"):  # new sentences, new rate and pitch, but espeak variants used in training
        while len(groups[lang + "_known_voices"]) < N:
            text = grammar.sentence(lang, rng, salad=0)
            if text not in seen and len(text.split()) > 2:
                v = (
                    rng.choice(["gmw/en-US", "gmw/en"] if lang == "en" else tts.BASE[lang])
                    + "+"
                    + rng.choice(["m1", "m2", "m3", "m4", "f1", "f2", "f3", "f5"])
                )
                x, w = tts.espeak(text, v, rng.randint(140, 180), rng.randint(30, 70))
                groups[lang + "_known_voices"].append(dict(lang=lang, text=text, voice=v, audio=x / np.abs(x).max()))
    for name, es in groups.items():
        es = es[: N if name.startswith("en") and "fest" not in name else N // 2]
        for snr in (30, 15) if name == "en_known_voices" else (30,):
            refs, hyps, ok, dur, t0 = [], [], 0, 0, time.time()
            exact = 0
            for k, e in enumerate(es):
                x = phone(np.pad(e["audio"] if "audio" in e else st.audio(e), (800, 1600)), k, snr)
                s, info = m.transcribe(x)
                h = "".join(q.text for q in s).strip()
                refs.append(e["text"])
                hyps.append(h)
                exact += h == e["text"]
                ok += info.language == e["lang"]
                dur += len(x) / 16000
            res[f"sentence/{name}/snr{snr}"] = dict(
                n=len(es),
                wer=wer(refs, hyps),
                exact=round(exact / len(es), 3),
                lang_acc=round(ok / len(es), 3),
                rtf=round((time.time() - t0) / dur, 3),
            )
            print(name, snr, res[f"sentence/{name}/snr{snr}"], flush=True)
            bad = [(r, h) for r, h in zip(refs, hyps) if norm(r) != norm(h)]
            for r, h in bad[:4]:
                print("   ref:", r, "\n   hyp:", h)
    errs = {"start": [], "end": [], "word_start": []}
    for lang, seeds in (("en", (1, 2)), ("es", (4,)), ("de", (5,))):
        for sd in seeds:
            ch, segs = make_call(sd, lang)
            views = dict(
                mono=(ch.sum(0), segs),
                left=(ch[0], [s for s in segs if s[0] == 0]),
                right=(ch[1], [s for s in segs if s[0] == 1]),
            )
            for vn, (x, sg) in views.items():
                y = phone(x, sd)
                ref = " ".join(s[3] for s in sg)
                t0 = time.time()
                out, info = m.transcribe(y, word_timestamps=True)
                out = list(out)
                el = time.time() - t0
                hyp = " ".join(s.text.strip() for s in out)
                hv, _ = m.transcribe(y, vad_filter=True)
                hypv = " ".join(s.text.strip() for s in hv)
                t0 = time.time()
                bt, _ = BatchedInferencePipeline(m).transcribe(y, batch_size=8)
                hypb = " ".join(s.text.strip() for s in bt)
                elb = time.time() - t0
                bt, _ = BatchedInferencePipeline(m).transcribe(y, batch_size=8, chunk_length=8)
                hypc = " ".join(s.text.strip() for s in bt)
                d = len(y) / 16000
                r = dict(
                    sec=round(d, 1),
                    lang=info.language,
                    wer=wer([ref], [hyp]),
                    wer_vad=wer([ref], [hypv]),
                    wer_batched8=wer([ref], [hypb]),
                    wer_batched8_chunk8s=wer([ref], [hypc]),
                    rtf=round(el / d, 3),
                    rtf_batched=round(elb / d, 3),
                    segments=len(out),
                )
                # word times: align reference and hypothesis words, compare matched ones
                words = [w for s in out for w in (s.words or [])]
                hw = [norm(w.word) for w in words]
                rw = [
                    (norm(t), a, j == 0, j == len(s[4]) - 1)
                    for s in sg
                    for j, (t, a) in enumerate(zip(s[3].split(), s[4]))
                ]
                rw = [q for q in rw if q[0]]
                keep = [i for i, w in enumerate(hw) if w and " " not in w]
                al = jiwer.process_words(" ".join(q[0] for q in rw), " ".join(hw[i] for i in keep)).alignments[0]
                e = []
                for c in al:
                    if c.type == "equal":
                        for i in range(c.ref_end_idx - c.ref_start_idx):
                            q, w = rw[c.ref_start_idx + i], words[keep[c.hyp_start_idx + i]]
                            e.append(abs(w.start - q[1][0]))
                            errs["word_start"].append(e[-1])
                            if q[2]:
                                errs["start"].append(abs(w.start - q[1][0]))
                            if q[3]:
                                errs["end"].append(abs(w.end - q[1][1]))
                r["word_start_median_abs_s"] = round(float(np.median(e)), 3) if e else None
                res[f"call/{lang}{sd}/{vn}"] = r
                print(lang, sd, vn, r, flush=True)
                if vn == "mono" and sd in (1, 4):
                    print("   ref:", ref[:300], "\n   hyp:", hyp[:300])
    res["word_time_error_s"] = {
        k: dict(n=len(v), median=round(float(np.median(v)), 3), p90=round(float(np.quantile(v, 0.9)), 3))
        for k, v in errs.items()
        if v
    }
    print(res["word_time_error_s"])
    g = np.random.default_rng(0)
    t = np.arange(16000 * 12) / 16000
    quiet = {
        "silence": np.zeros(16000 * 12),
        "white": g.standard_normal(16000 * 12) * 0.05,
        "faint": g.standard_normal(16000 * 12) * 0.001,
        "hum": 0.1 * np.sin(2 * np.pi * 50 * t),
        "ringback": 0.2 * np.sin(2 * np.pi * 440 * t) * ((t % 5) < 2),
    }
    for k, x in quiet.items():
        s, info = m.transcribe(x.astype(np.float32), word_timestamps=True)
        s = list(s)
        res[f"no_speech/{k}"] = dict(text="".join(q.text for q in s), prob=[round(q.no_speech_prob, 3) for q in s])
        print("no speech", k, res[f"no_speech/{k}"])
    json.dump(res, open(mdir.rstrip("/") + ".eval.json", "w"), indent=1)


if __name__ == "__main__":
    main()
