"""Train.  usage: train.py WORK --minutes M --T 8 --B 12 --lr 2e-3 [--init ckpt] --out ckpt [--bf16]
The schedule is by wall time: short warm-up, then cosine from --lr to --lr-end at M minutes.
Data-parallel: --procs processes of one thread (a busy machine makes OpenMP barriers very slow)."""

import argparse
import json
import math
import random
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F

import data
import model as M

W_PH = torch.ones(data.N_PH)
W_PH[0] = 0.3  # silence is easy and frequent


class Batches(torch.utils.data.IterableDataset):
    """Endless batches; --mix of them are short windows (8 of 6 s per 2 of 30 s on the CPU)."""

    def __init__(self, a, rank):
        self.a, self.rank = a, rank

    def __iter__(self):
        a, info = self.a, torch.utils.data.get_worker_info()
        torch.set_num_threads(1)
        data.SNR_MIN, data.LANG_SHARES = a.snr_min, tuple(float(share) for share in a.shares.split(","))
        rng = random.Random(a.seed * 1000 + self.rank * 100 + (info.id if info else 0))
        st = data.Store(a.work, utt=a.utt, voices=a.voices)
        while True:
            yield st.batch(rng, a.B_short, 6.0) if rng.random() < a.mix else st.batch(rng, a.B, a.T)


def losses(net, b, bf16, w_ctc, w_att, w_ph, drop=0.0):
    dev = b["mel"].device
    with torch.autocast(dev.type, torch.bfloat16, enabled=bf16):
        mem = net.model.encoder(b["mel"].float(), b["off"])
        hid, att = net.model.decoder(b["inp"], mem, drop)
        m = b["tgt"] >= 0
        logits = net.model.decoder.logits(hid[m])
        ctc_logits, ph = net.ctc(mem), net.ph(mem)
    tgt = b["tgt"][m]
    ce = F.cross_entropy(logits, tgt)
    out = dict(ce=ce, loss=ce)
    if w_ctc:
        lp = ctc_logits.float().log_softmax(-1).transpose(0, 1)
        ctc = F.ctc_loss(lp, b["ctc"], b["frames"], b["ctc_n"], zero_infinity=True, reduction="sum") / b[
            "ctc_n"
        ].sum().clamp(min=1)
        out.update(ctc=ctc, loss=out["loss"] + w_ctc * ctc)
    if w_ph:
        p = F.cross_entropy(ph.float().flatten(0, 1), b["ph"].flatten(), W_PH.to(dev), ignore_index=-100)
        out.update(ph=p, loss=out["loss"] + w_ph * p)
    if w_att and att is not None and len(b["gm"]):
        a = att[b["gm"][:, 0], : M.GUIDED, b["gm"][:, 1]]  # (N, heads, frames)
        c = F.pad(a.cumsum(-1), (1, 0))
        i = torch.arange(len(c), device=dev)
        mass = c[i, :, b["gw"][:, 1]] - c[i, :, b["gw"][:, 0]]
        g = -(mass + 1e-4).log().mean()
        out.update(att=g, loss=out["loss"] + w_att * g)
    with torch.no_grad():
        out["acc"] = (logits.argmax(-1) == tgt).float().mean()
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("work")
    ap.add_argument("--minutes", type=float, default=30)
    ap.add_argument("--T", type=float, default=8)
    ap.add_argument("--B", type=int, default=16)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--lr-end", type=float, default=2e-4)
    ap.add_argument("--init")
    ap.add_argument("--out", required=True)
    ap.add_argument("--bf16", action="store_true")
    ap.add_argument("--procs", type=int, default=2, help="data-parallel processes of one thread each")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--steps", type=int, default=10**9)
    ap.add_argument("--w-ctc", type=float, default=1.0)
    ap.add_argument("--w-att", type=float, default=0.5)
    ap.add_argument("--w-ph", type=float, default=2.0)
    ap.add_argument("--utt", default="utt", help="utterance stores under WORK, separated by commas")
    ap.add_argument("--shares", default="0.42,0.29,0.29", help="shares of English, Spanish and German windows")
    ap.add_argument("--snr-min", type=float, default=15.0, help="least signal-to-noise ratio, dB")
    ap.add_argument("--fresh-opt", action="store_true")
    ap.add_argument("--voices", help="regular expression: use these voices only")
    ap.add_argument("--mix", type=float, default=0.0, help="share of steps that use --B-short windows of 6 s instead")
    ap.add_argument("--B-short", type=int, default=8)
    ap.add_argument("--device", default="cpu", help="cpu or cuda (cuda: one process, use --workers)")
    ap.add_argument("--workers", type=int, default=0, help="loader processes; 0: in the training process")
    ap.add_argument("--sync", type=int, default=8, help="steps between weight averages of the processes")
    ap.add_argument("--warmup", type=int, default=150)
    a = ap.parse_args()
    if a.device == "cpu":
        mp.spawn(worker, (a,), nprocs=a.procs)
    else:
        a.procs = 1
        worker(0, a)


def worker(rank, a):
    if a.procs > 1:
        dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29517", rank=rank, world_size=a.procs)
    torch.manual_seed(a.seed)
    torch.set_num_threads(1)
    net = M.Whisper(data.N_CTC, data.N_PH).to(a.device)
    decay = [p for p in net.parameters() if p.requires_grad and p.ndim > 1]
    rest = [p for p in net.parameters() if p.requires_grad and p.ndim <= 1]
    params = decay + rest
    opt = torch.optim.AdamW(
        [dict(params=decay, weight_decay=0.01), dict(params=rest, weight_decay=0)],
        lr=a.lr,
        betas=(0.9, 0.98),
        fused=True,
    )
    if a.init:
        ck = torch.load(a.init, map_location=a.device)
        miss = net.load_state_dict(ck["net"], strict=False).missing_keys
        if not miss and not a.fresh_opt:
            opt.load_state_dict(ck["opt"])
    dl = iter(
        torch.utils.data.DataLoader(
            Batches(a, rank), batch_size=None, num_workers=a.workers, prefetch_factor=4 if a.workers else None
        )
    )
    t0, step, run = time.time(), 0, {}
    save = lambda: rank == 0 and torch.save(dict(net=net.state_dict(), opt=opt.state_dict()), a.out)
    net.train()
    el = 0.0
    while step < a.steps and el < a.minutes:
        lr = (a.lr_end + (a.lr - a.lr_end) * 0.5 * (1 + math.cos(math.pi * el / a.minutes))) * min(
            1, (step + 1) / a.warmup
        )
        for g in opt.param_groups:
            g["lr"] = lr
        b = {k: v.to(a.device) for k, v in next(dl).items()}
        o = losses(net, b, a.bf16, a.w_ctc, a.w_att, a.w_ph)
        opt.zero_grad(set_to_none=True)
        o["loss"].backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        step += 1
        if a.procs == 1:
            el = (time.time() - t0) / 60
        elif step % a.sync == 0:  # local SGD: average the weights now and then instead of every gradient
            # the last element carries rank 0's clock, so that all stop together
            clock = torch.tensor([(time.time() - t0) / 60 * a.procs if rank == 0 else 0.0])
            flat = torch.cat([p.detach().flatten() for p in params] + [clock])
            dist.all_reduce(flat)
            flat /= a.procs
            el = float(flat[-1])
            i = 0
            for p in params:
                p.data.copy_(flat[i : i + p.numel()].view_as(p))
                i += p.numel()
        for k, v in o.items():
            run[k] = run.get(k, 0) + v.detach()
        if rank == 0 and step % 50 == 0:
            print(
                json.dumps(
                    dict(
                        step=step,
                        min=round(el, 2),
                        lr=round(lr, 6),
                        **{k: round(float(v) / 50, 4) for k, v in run.items()},
                    )
                ),
                flush=True,
            )
            run = {}
        if step % 96 == 0:
            save()
    save()
    if rank == 0:
        print("done", step, "steps", round((time.time() - t0) / 60, 2), "min", flush=True)


if __name__ == "__main__":
    main()
