"""Step 5 - PLDA for VBxClustering, from embeddings of the training pseudo-speakers. python make_plda.py data pipeline/embedding pipeline/plda"""

import os
import sys

os.environ["PYANNOTE_METRICS_ENABLED"] = "0"
import numpy as np
import torch
from pyannote.audio import Model
from scipy.linalg import eigh

from sim import Bank, channel, dialogue

data, emb, out = sys.argv[1:4]
LDA = 64
torch.set_num_threads(1)
os.makedirs(out, exist_ok=True)
bank, model, r = Bank(data, "train"), Model.from_pretrained(emb).eval(), np.random.default_rng(5)
E, Y = [], []
with torch.inference_mode():
    for _ in range(500):
        spks = bank.pick(r, 2)
        x, lab = dialogue(r, bank, spks, 8)
        x = torch.from_numpy(channel(r, x))[None, None]
        x = model.audio.downmix_and_resample(x[0], 16000)[0][None]
        e = model(x, weights=torch.from_numpy(lab.T.astype(np.float32))[None])[0].numpy()
        for k in range(2):
            if lab[:, k].sum() > 150:
                E.append(e[k])
                Y.append(spks[k])
E, Y = np.array(E, np.float64), np.array(Y)


def scat(x):
    cls = [x[y == Y] for y in np.unique(Y) if (y == Y).sum() > 3]
    W = sum(((c - c.mean(0)).T @ (c - c.mean(0))) for c in cls) / sum(len(c) for c in cls)
    mu = np.array([c.mean(0) for c in cls])
    return W + 1e-4 * np.eye(len(W)) * np.trace(W) / len(W), np.cov(mu.T)


norm = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)
mean1 = E.mean(0)
x = np.sqrt(E.shape[1]) * norm(E - mean1)
W, B = scat(x)
w, V = eigh(B, W)
lda = V[:, ::-1][:, :LDA]
mean2 = (x @ lda).mean(0)
x = np.sqrt(LDA) * norm(x @ lda - mean2)
W, B = scat(x)
B += 1e-6 * np.eye(LDA)
psi, V = eigh(B, W)
np.savez(f"{out}/xvec_transform.npz", mean1=mean1, mean2=mean2, lda=lda)
np.savez(f"{out}/plda.npz", mu=x.mean(0), tr=V.T[::-1], psi=psi[::-1])
print("PLDA from", len(E), "embeddings; psi", psi[::-1][:5].round(1), "...", psi[::-1][-3:].round(3))
