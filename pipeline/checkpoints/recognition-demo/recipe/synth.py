"""Make the utterance store: WORK/{train,dev}.i16 (8 kHz int16, concatenated) and WORK/{train,dev}.json
[{lang,text,voice,off,n,words:[[s,e]..],phones:[[name,start]..]}].   usage: synth.py WORK [n_en n_es n_de n_flite]"""

import json
import multiprocessing as mp
import os
import random
import sys

import numpy as np

import grammar
import tts


def job(a):
    part, shard, items, work = a
    rng = random.Random(f"{part}{shard}")
    idx, off = [], 0
    with open(f"{work}/{part}.{shard}.i16", "wb") as f:
        for lang, text, eng in items:
            ph = []
            try:
                if eng == "flite":
                    x, w, v = tts.random_flite(text, rng)
                elif eng.startswith("festival"):
                    x, w = tts.festival(text, eng.split(":")[1])
                    v = eng
                else:
                    x, w, v = tts.random_espeak(text, lang, rng, held=(part == "dev"))
                    ph = tts.last_phones()
            except Exception as e:  # a voice that fails is skipped, not fatal
                print("skip", lang, text, repr(e)[:80])
                continue
            x = (x / max(1e-4, np.abs(x).max()) * 20000).astype(np.int16)
            if not 0.2 < len(x) / tts.SR < 12:
                continue
            f.write(x.tobytes())
            idx.append(
                dict(
                    lang=lang,
                    text=text,
                    voice=v,
                    off=off,
                    n=len(x),
                    words=[[round(a, 3), round(b, 3)] for a, b in w],
                    phones=ph,
                )
            )
            off += len(x)
    return part, shard, idx, off


def main():
    work = sys.argv[1]
    n = [int(v) for v in sys.argv[2:6]] or [15000, 4000, 4000, 2400]
    os.makedirs(work, exist_ok=True)
    rng = random.Random(int(os.environ.get("SEED", "7")))
    dev, seen = [], set()
    for lang, k in (("en", 200), ("es", 80), ("de", 80)):
        while sum(d[0] == lang for d in dev) < k:
            t = grammar.sentence(lang, rng, salad=0)
            if t not in seen and len(t.split()) >= 3:
                seen.add(t)
                dev.append((lang, t, "espeak"))
    fest = [(l, t, "festival:" + v) for v in ("kal_diphone", "cmu_us_slt_arctic_hts") for l, t, _ in dev[:40]]
    train, count = [], {}
    for lang, k, eng in (("en", n[0], "espeak"), ("es", n[1], "espeak"), ("de", n[2], "espeak"), ("en", n[3], "flite")):
        m = 0
        while m < k:
            t = grammar.sentence(lang, rng)
            if t in seen or count.get(t, 0) >= 8:
                continue
            count[t] = count.get(t, 0) + 1
            train.append((lang, t, eng))
            m += 1
    print(len(train), "training utterances,", len(count), "distinct sentences")
    rng.shuffle(train)
    ns = 8
    jobs = [("dev", 0, dev + fest, work)] + [("train", s, train[s::ns], work) for s in range(ns)]
    with mp.get_context("spawn").Pool(int(os.environ.get("PROCS", 2))) as p:
        res = p.map(job, jobs, chunksize=1)
    for part in ("train", "dev"):
        idx, base = [], 0
        with open(f"{work}/{part}.i16", "wb") as f:
            for pt, sh, ix, ln in sorted(r for r in res if r[0] == part):
                f.write(open(f"{work}/{part}.{sh}.i16", "rb").read())
                os.remove(f"{work}/{part}.{sh}.i16")
                for e in ix:
                    e["off"] += base
                idx += ix
                base += ln
        json.dump(idx, open(f"{work}/{part}.json", "w"))
        print(part, len(idx), "utterances", round(base / tts.SR / 3600, 2), "h")


if __name__ == "__main__":
    main()
