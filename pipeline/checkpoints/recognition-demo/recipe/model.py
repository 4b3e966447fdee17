"""Whisper in plain PyTorch with the parameter names of transformers' WhisperForConditionalGeneration,
a compact output vocabulary (see tok.py), a character-CTC head on the encoder and access to the
cross-attention of the last decoder layer (for the guided-attention loss)."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

import tok

D, HEADS, FFN, ENC, DEC, GUIDED = 128, 4, 512, 4, 2, 2


def sinusoids(n, d):
    inv = torch.exp(-math.log(10000) / (d // 2 - 1) * torch.arange(d // 2))
    t = torch.arange(n)[:, None] * inv[None]
    return torch.cat([t.sin(), t.cos()], 1)


class Attn(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.v_proj, self.out_proj = (nn.Linear(D, D) for _ in range(3))
        self.k_proj = nn.Linear(D, D, bias=False)

    def forward(self, x, mem=None, causal=False, mask=None, need=False):
        mem = x if mem is None else mem
        sh = lambda y: y.view(y.shape[0], y.shape[1], HEADS, D // HEADS).transpose(1, 2)
        q, k, v = sh(self.q_proj(x)), sh(self.k_proj(mem)), sh(self.v_proj(mem))
        w = None
        if need:
            w = ((q @ k.transpose(2, 3)) / math.sqrt(D // HEADS)).float()
            if mask is not None:
                w = w.masked_fill(~mask, -1e9)
            w = w.softmax(-1)
            y = w.to(v.dtype) @ v
        elif (
            x.device.type == "cpu" and not causal and mem.shape[1] <= 700
        ):  # two bmm calls beat the CPU flash kernel on short windows in bf16
            q, k, v = (z.reshape(-1, z.shape[2], z.shape[3]) for z in (q, k, v))
            y = torch.baddbmm(q.new_zeros(1), q, k.transpose(1, 2), beta=0, alpha=(D // HEADS) ** -0.5).softmax(-1) @ v
            y = y.view(x.shape[0], HEADS, x.shape[1], D // HEADS)
        else:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        return self.out_proj(y.transpose(1, 2).reshape(x.shape)), w


class Layer(nn.Module):
    def __init__(self, cross):
        super().__init__()
        self.self_attn, self.self_attn_layer_norm = Attn(), nn.LayerNorm(D)
        if cross:
            self.encoder_attn, self.encoder_attn_layer_norm = Attn(), nn.LayerNorm(D)
        self.fc1, self.fc2, self.final_layer_norm = nn.Linear(D, FFN), nn.Linear(FFN, D), nn.LayerNorm(D)
        self.cross = cross

    def forward(self, x, mem=None, need=False, drop=0.0):
        dp = lambda y: F.dropout(y, drop, self.training)
        x = x + dp(self.self_attn(self.self_attn_layer_norm(x), causal=self.cross)[0])
        w = None
        if self.cross:
            y, w = self.encoder_attn(self.encoder_attn_layer_norm(x), mem, need=need)
            x = x + dp(y)
        return x + dp(self.fc2(F.gelu(self.fc1(self.final_layer_norm(x))))), w


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(80, D, 3, padding=1), nn.Conv1d(D, D, 3, stride=2, padding=1)
        self.embed_positions = nn.Embedding(1500, D)
        self.embed_positions.weight.data = sinusoids(1500, D)
        self.embed_positions.weight.requires_grad = False
        self.layers = nn.ModuleList(Layer(False) for _ in range(ENC))
        self.layer_norm = nn.LayerNorm(D)

    def forward(self, mel, offset):
        """offset: (B,) first position of each window; training on short windows at random offsets
        teaches all 1500 positions."""
        x = F.gelu(self.conv2(F.gelu(self.conv1(mel)))).transpose(1, 2)
        x = x + self.embed_positions.weight[offset[:, None] + torch.arange(x.shape[1], device=x.device)]
        for l in self.layers:
            x = l(x)[0]
        return self.layer_norm(x)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(tok.N_COMPACT, D)
        nn.init.normal_(self.embed_tokens.weight, std=0.05)
        self.embed_positions = nn.Embedding(448, D)
        self.embed_positions.weight.data = sinusoids(448, D) * 0.05
        self.layers = nn.ModuleList(Layer(True) for _ in range(DEC))
        self.layer_norm = nn.LayerNorm(D)

    def forward(self, ids, mem, drop=0.0):
        x = self.embed_tokens(ids) + self.embed_positions.weight[: ids.shape[1]]
        for i, l in enumerate(self.layers):
            x, w = l(x, mem, need=i == DEC - 1 and self.training, drop=drop)
        return self.layer_norm(x), w

    def logits(self, x):
        y = (x @ self.embed_tokens.weight.T.to(x.dtype)).float()
        # the filler class stands for N_FILL equal rows of the exported matrix
        return torch.cat([y[..., :-1], y[..., -1:] + math.log(tok.N_FILL)], -1)


class Whisper(nn.Module):
    def __init__(self, n_ctc, n_ph):
        super().__init__()
        self.model = nn.Module()
        self.model.encoder, self.model.decoder = Encoder(), Decoder()
        self.ctc, self.ph = nn.Linear(D, n_ctc), nn.Linear(D, n_ph)  # training only
