"""Step 3 - train PyanNet (powerset, 3 speakers / 2 simultaneous, 10 s) in plain torch; save a pyannote checkpoint.

Loss: exact permutation-invariant powerset NLL (min over the 3! speaker orders) + an auxiliary frame-wise speaker
classification head on the LSTM output, dropped at the end (it makes the LSTM learn voices in minutes, not hours).
"""

import argparse
import itertools
import os
import time

os.environ["PYANNOTE_METRICS_ENABLED"] = "0"
import numpy as np
import torch
import torch.nn.functional as F
from pyannote.audio.core.task import Problem, Resolution, Specifications
from pyannote.audio.models.segmentation import PyanNet
from pyannote.audio.utils.powerset import Powerset
from torch.utils.data import DataLoader, IterableDataset

from save import save_checkpoint
from sim import Bank, channel, dialogue

ap = argparse.ArgumentParser()
ap.add_argument("data")
ap.add_argument("out")
ap.add_argument("--minutes", type=float, default=22)
ap.add_argument("--batch", type=int, default=32)
ap.add_argument("--stride", type=int, default=16)
ap.add_argument("--hidden", type=int, default=64)
ap.add_argument("--seed", type=int, default=1)
ap.add_argument("--iterations", type=int, help="stop (and schedule) by iterations instead of minutes: deterministic")
ap.add_argument("--init")
ap.add_argument("--lr", type=float, default=2e-3)
ap.add_argument("--aux", type=float, default=0.5)
A = ap.parse_args()
torch.set_num_threads(1)
torch.manual_seed(A.seed)
DUR, MAXS = 10.0, 3
bank = Bank(A.data, "train")


def build():
    m = PyanNet(
        sincnet={"stride": A.stride},
        lstm={"hidden_size": A.hidden, "num_layers": 2, "dropout": 0.0, "monolithic": True},
        linear={"hidden_size": 64, "num_layers": 2},
    )
    m.specifications = Specifications(
        problem=Problem.MONO_LABEL_CLASSIFICATION,
        resolution=Resolution.FRAME,
        duration=DUR,
        min_duration=DUR,
        warm_up=(0.0, 0.0),
        classes=["speaker#1", "speaker#2", "speaker#3"],
        powerset_max_classes=2,
        permutation_invariant=True,
    )
    m.build()
    return m


model = build()
if A.init:
    model.load_state_dict(torch.load(A.init, weights_only=False)["state_dict"])
NF = model.num_frames(int(DUR * 16000))
rf = model.receptive_field
centers = np.clip(np.round((np.arange(NF) * rf.step + rf.start + rf.duration / 2) * 100 - 0.5).astype(int), 0, 999)
print("frames", NF, "step", rf.step, "params", sum(p.numel() for p in model.parameters()), flush=True)


class Sim(IterableDataset):
    def __init__(self, seed):
        self.seed = seed

    def __iter__(self):
        r = np.random.default_rng(self.seed)
        while True:
            n = int(r.choice([1, 2, 3], p=[0.12, 0.76, 0.12]))
            spks = bank.pick(r, n)
            x, lab = dialogue(r, bank, spks, DUR)
            x = channel(r, x)
            if r.random() < 0.1:  # zero-padded last chunk, as in Inference.slide
                c = int(r.uniform(0.2, 0.9) * len(x))
                x[c:] = 0
                lab[c // 160 :] = False
            y = np.zeros((NF, MAXS), np.float32)
            y[:, :n] = lab[centers]
            over = y.sum(1) > 2
            y[over, 2] = 0
            sid = np.full(NF, -100, np.int64)  # aux target: id of the only active speaker
            one = y.sum(1) == 1
            sid[one] = np.array(spks + [0] * (MAXS - n))[y[one].argmax(1)]
            yield torch.from_numpy(x)[None], torch.from_numpy(y), torch.from_numpy(sid)


pset = Powerset(MAXS, 2)
perms = list(itertools.permutations(range(MAXS)))
aux = torch.nn.Linear(2 * A.hidden, len(bank.spk))
# sinc filters stay at their mel initialisation: no backward through the most expensive convolution
for n, p in model.named_parameters():
    if n.startswith("sincnet.conv1d.0") or n.startswith("sincnet.wav_norm1d"):
        p.requires_grad_(False)
params = [p for p in model.parameters() if p.requires_grad] + list(aux.parameters())
opt = torch.optim.AdamW(params, lr=2e-3, weight_decay=1e-3)
feat = {}


def forward(x):
    """PyanNet.forward in bf16 autocast, with the frozen sinc convolution written as one matrix product (2x faster on CPU)"""
    sn = model.sincnet
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.no_grad():
            k = sn.conv1d[0].filterbank.filters().squeeze(1)  # (80, 251)
            o = torch.matmul(sn.wav_norm1d(x).squeeze(1).bfloat16().unfold(-1, 251, A.stride), k.T.bfloat16())
            o = sn.pool1d[0](o.transpose(1, 2).abs())
        o = F.leaky_relu(sn.norm1d[0](o))
        for c in (1, 2):
            o = F.leaky_relu(sn.norm1d[c](sn.pool1d[c](sn.conv1d[c](o))))
        h, _ = model.lstm(o.transpose(1, 2))
        feat["h"] = h
        for lin in model.linear:
            h = F.leaky_relu(lin(h))
        h = model.classifier(h)
    return model.activation(h.float())


if os.environ.get("CHECK"):
    model.eval()
    xx = torch.randn(2, 1, 160000)
    print("forward check", (forward(xx) - model(xx)).abs().max().item())
    raise SystemExit
loader = DataLoader(Sim(A.seed * 1000), batch_size=A.batch, num_workers=0)
t0, it, ema = time.time(), 0, {}
model.train()
for x, y, sid in loader:
    el = it / A.iterations if A.iterations else (time.time() - t0) / 60 / A.minutes
    if el >= 1:
        break
    lr = A.lr * min(1, (it + 1) / 60) * (1 if el < 0.35 else 0.5 * (1 + np.cos(np.pi * (el - 0.35) / 0.65)) + 0.01)
    for g in opt.param_groups:
        g["lr"] = lr
    logp = forward(x)
    nll = torch.stack(
        [
            F.nll_loss(logp.transpose(1, 2), pset.to_powerset(y[:, :, list(p)]).argmax(-1), reduction="none").mean(1)
            for p in perms
        ]
    )
    best, which = nll.min(0)
    loss = best.mean()
    la = F.cross_entropy(aux(feat["h"].float()).reshape(-1, len(bank.spk)), sid.reshape(-1), ignore_index=-100)
    w = A.aux if el < 0.5 else 0.3 * A.aux
    opt.zero_grad()
    (loss + w * la).backward()
    torch.nn.utils.clip_grad_norm_(params, 1.0)
    opt.step()
    with torch.no_grad():
        pred = pset.to_multilabel(logp)
        yp = torch.stack([y[i][:, list(perms[k])] for i, k in enumerate(which)])
        err = (torch.maximum(pred.sum(-1), yp.sum(-1)) - (pred * yp).sum(-1)).sum() / yp.sum().clamp(min=1)
        vad = ((pred.sum(-1) > 0) != (yp.sum(-1) > 0)).float().mean()
    for k, v in dict(loss=loss, aux=la, der=err, vad=vad).items():
        ema[k] = 0.95 * ema.get(k, float(v.detach())) + 0.05 * float(v.detach())
    if it % 20 == 0:
        print(it, f"{(time.time() - t0) / 60:.1f}m lr {lr:.1e}", {k: round(v, 3) for k, v in ema.items()}, flush=True)
    if it % 200 == 199:
        save_checkpoint(model, A.out)
    it += 1
save_checkpoint(model, A.out)
print("done", it, "iterations", {k: round(v, 4) for k, v in ema.items()})
