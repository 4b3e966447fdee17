"""Step 4 - train XVectorMFCC (8 kHz MFCC, 128-d) with additive-margin softmax over the pseudo-speakers.

Trained the way the pipeline calls it: a chunk holding two speakers + one mask per speaker (StatsPool weights).
MFCC mean/std normalisation is folded into the first convolution at the end; c0 (level) gets zero weight.
"""

import argparse
import os
import time

os.environ["PYANNOTE_METRICS_ENABLED"] = "0"
import numpy as np
import torch
import torch.nn.functional as F
import torchaudio
from pyannote.audio.core.task import Problem, Resolution, Specifications
from pyannote.audio.models.embedding import XVectorMFCC

from save import save_checkpoint
from sim import Bank, channel, dialogue

ap = argparse.ArgumentParser()
ap.add_argument("data")
ap.add_argument("out")
ap.add_argument("--minutes", type=float, default=20)
ap.add_argument("--batch", type=int, default=40)
ap.add_argument("--dim", type=int, default=128)
ap.add_argument("--seconds", type=float, default=4.0)
ap.add_argument("--margin", type=float, default=0.2)
ap.add_argument("--scale", type=float, default=24.0)
ap.add_argument("--seed", type=int, default=1)
ap.add_argument("--iterations", type=int, help="stop (and schedule) by iterations instead of minutes: deterministic")
A = ap.parse_args()
torch.set_num_threads(1)
torch.manual_seed(A.seed)
r = np.random.default_rng(A.seed)
bank = Bank(A.data, "train")
model = XVectorMFCC(
    sample_rate=8000,
    dimension=A.dim,
    mfcc={
        "n_mfcc": 40,
        "dct_type": 2,
        "norm": "ortho",
        "log_mels": False,
        "melkwargs": {"n_fft": 256, "hop_length": 160, "n_mels": 40, "f_min": 100.0, "f_max": 3800.0},
    },
)
model.specifications = Specifications(
    problem=Problem.REPRESENTATION,
    resolution=Resolution.CHUNK,
    duration=A.seconds,
    classes=[str(s["id"]) for s in bank.spk],
)
down = torchaudio.transforms.Resample(16000, 8000)


def batch(n):
    X, M, L = [], [], []
    for _ in range(n):
        spks = bank.pick(r, 2)
        x, lab = dialogue(r, bank, spks, A.seconds, overlap=0.15, backchannel=0.1)
        X.append(channel(r, x))
        m = lab.T.astype(np.float32)
        j = int(r.integers(-8, 9))
        m = np.roll(m, j, 1)  # segmentation is never exact
        if r.random() < 0.5:
            m = m * (lab.sum(1) < 2)  # embedding_exclude_overlap or not
        M.append(m)
        L.append([s if m[i].sum() > 80 else -1 for i, s in enumerate(spks)])
    M, L = torch.from_numpy(np.stack(M)), torch.tensor(L)
    M[L < 0] = 1.0  # empty mask: std of nothing has a NaN gradient
    return down(torch.from_numpy(np.stack(X)))[:, None], M, L


with torch.no_grad():
    f = model.mfcc(batch(200)[0]).squeeze(1)
    mean, std = f.mean((0, 2)), f.std((0, 2))
inv = 1 / std
inv[0] = 0.0
W = torch.nn.Parameter(torch.randn(len(bank.spk), A.dim) * 0.1)


def forward(x, m):
    with torch.no_grad():
        h = (model.mfcc(x).squeeze(1) - mean[:, None]) * inv[:, None]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for l in model.tdnns:
            h = l(h)
    e = model.stats_pool(h.float(), weights=m)
    return model.embedding(e)


def folded():
    import copy

    m = copy.deepcopy(model)
    c = m.tdnns[0]
    with torch.no_grad():
        w = c.weight.clone()
        c.weight.copy_(w * inv[None, :, None])
        c.bias.sub_((w * (mean * inv)[None, :, None]).sum((1, 2)))
    return m.eval()


params = list(model.parameters()) + [W]
opt = torch.optim.AdamW(params, lr=1e-3, weight_decay=1e-2)
t0, it, ema = time.time(), 0, {}
model.train()
while True:
    el = it / A.iterations if A.iterations else (time.time() - t0) / 60 / A.minutes
    if el >= 1:
        break
    lr = 1.5e-3 * min(1, (it + 1) / 50) * (1 if el < 0.3 else 0.5 * (1 + np.cos(np.pi * (el - 0.3) / 0.7)) + 0.005)
    for g in opt.param_groups:
        g["lr"] = lr
    x, m, y = batch(A.batch)
    e = forward(x, m).reshape(-1, A.dim)
    y = y.reshape(-1)
    ok = y >= 0
    e, y = e[ok], y[ok]
    cos = F.normalize(e) @ F.normalize(W).T
    marg = A.margin * min(1, it / 300)
    loss = F.cross_entropy(A.scale * (cos - marg * F.one_hot(y, len(W))), y)
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(params, 2.0)
    opt.step()
    for k, v in dict(loss=loss.item(), acc=(cos.argmax(1) == y).float().mean().item()).items():
        ema[k] = 0.95 * ema.get(k, v) + 0.05 * v
    if it % 20 == 0:
        print(it, f"{(time.time() - t0) / 60:.1f}m lr {lr:.1e}", {k: round(v, 3) for k, v in ema.items()}, flush=True)
    if it % 200 == 199:
        save_checkpoint(folded(), A.out)
    it += 1
save_checkpoint(folded(), A.out)
print("done", it, {k: round(v, 4) for k, v in ema.items()})
