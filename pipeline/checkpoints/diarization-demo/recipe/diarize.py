#!/usr/bin/env python
"""Run the unmodified pyannote.audio 4.0.7 SpeakerDiarization pipeline fully offline on one wav.

python diarize.py call.wav [--clustering ahc|vbx] [--num-speakers 2] [--pipeline DIR]
"""

import argparse
import json
import os
import sys
import warnings
import wave

# must be set before pyannote.audio is imported (telemetry is ON by default in 4.x)
os.environ["PYANNOTE_METRICS_ENABLED"] = "0"
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch

with warnings.catch_warnings():
    # only this one message, only during this import: we never let pyannote decode files itself
    warnings.filterwarnings("ignore", message=r"\s*torchcodec is not installed correctly", category=UserWarning)
    from pyannote.audio import Pipeline

HERE = os.path.dirname(os.path.abspath(__file__))


def load_wav(path):
    """PCM16 wav -> {'waveform': (channel, time) float32, 'sample_rate', 'uri'} (no FFmpeg / torchcodec needed)"""
    try:
        wave.open(path, "rb").close()
    except wave.Error:  # e.g. 32-bit float wav
        import soundfile

        x, sr = soundfile.read(path, dtype="float32", always_2d=True)
        return {
            "waveform": torch.from_numpy(np.ascontiguousarray(x.T)),
            "sample_rate": sr,
            "uri": os.path.splitext(os.path.basename(path))[0],
        }
    with wave.open(path, "rb") as w:
        assert w.getsampwidth() == 2, "16-bit PCM expected"
        x = (
            np.frombuffer(w.readframes(w.getnframes()), "<i2").reshape(-1, w.getnchannels()).T.astype(np.float32)
            / 32768
        )
        return {
            "waveform": torch.from_numpy(np.ascontiguousarray(x)),
            "sample_rate": w.getframerate(),
            "uri": os.path.splitext(os.path.basename(path))[0],
        }


def load_pipeline(directory=os.path.join(HERE, "pipeline"), clustering="ahc", device="cpu", batch=32):
    """directory/{config.yaml,config-vbx.yaml,segmentation/,embedding/,plda/}; '$model/x' in the yaml means directory/x"""
    name = "config.yaml" if clustering == "ahc" else "config-vbx.yaml"
    p = Pipeline.from_pretrained(os.path.join(directory, name))
    p.segmentation_batch_size = p.embedding_batch_size = batch
    return p.to(torch.device(device))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("wav")
    ap.add_argument("--clustering", default="ahc", choices=["ahc", "vbx"])
    ap.add_argument("--num-speakers", type=int)
    ap.add_argument("--pipeline", default=os.path.join(HERE, "pipeline"))
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--threads", type=int, default=1)
    a = ap.parse_args()
    torch.set_num_threads(a.threads)

    def hook(step, artifact, file=None, total=None, completed=None):  # same signature as pyannote's ProgressHook
        if total:
            print(f"\r{step}: {min(completed, total)}/{total}   ", end="", file=sys.stderr)

    out = load_pipeline(a.pipeline, a.clustering, a.device)(load_wav(a.wav), num_speakers=a.num_speakers, hook=hook)
    print(file=sys.stderr)
    res = out.serialize()  # no embeddings in there: add them
    res["speakers"] = {
        s: [round(float(v), 5) for v in e[:8]] + ["..."]
        for s, e in zip(out.speaker_diarization.labels(), out.speaker_embeddings)
    }
    print(json.dumps(res, indent=1))


if __name__ == "__main__":
    main()
