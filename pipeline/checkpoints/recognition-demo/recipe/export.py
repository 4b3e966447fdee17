"""Training checkpoint -> transformers model -> CTranslate2 folder for faster-whisper, with manifest and SHA256SUMS.
usage: export.py WORK CKPT OUTDIR [quantization=int8] [max_chunk_seconds=8]

OUTDIR may be the folder that holds this recipe's checkpoint: only the model's own files are replaced."""

import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from ctranslate2.converters.transformers import WhisperLoader
from tokenizers import Tokenizer
from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration

import data
import model as M
import tok


class TokenizerStub:
    """What CTranslate2's converter asks of a transformers tokenizer."""

    def __init__(self, path):
        v = tok.vocabulary(Tokenizer.from_file(path))[: tok.TS0]
        self.v = {t: i for i, t in enumerate(v)}

    def get_vocab(self):
        return self.v


def to_hf(net):
    cfg = WhisperConfig(
        vocab_size=tok.VOCAB,
        num_mel_bins=80,
        d_model=M.D,
        encoder_layers=M.ENC,
        decoder_layers=M.DEC,
        encoder_attention_heads=M.HEADS,
        decoder_attention_heads=M.HEADS,
        encoder_ffn_dim=M.FFN,
        decoder_ffn_dim=M.FFN,
        max_source_positions=1500,
        max_target_positions=448,
        pad_token_id=tok.EOT,
        bos_token_id=tok.EOT,
        eos_token_id=tok.EOT,
        decoder_start_token_id=tok.SOT,
        dropout=0.0,
        scale_embedding=False,
    )
    hf = WhisperForConditionalGeneration(cfg).eval()
    sd = {k: v for k, v in net.state_dict().items() if not k.startswith(("ctc.", "ph."))}
    k = "model.decoder.embed_tokens.weight"
    sd[k] = sd["proj_out.weight"] = tok.expand_rows(sd[k]).contiguous()
    print("load", hf.load_state_dict(sd, strict=True))
    hf.generation_config = GenerationConfig(
        suppress_tokens=[50258, 50360, 50361, 50362], begin_suppress_tokens=[220, tok.EOT]
    )
    return hf


PREPROCESSOR = {
    "chunk_length": 30,
    "feature_extractor_type": "WhisperFeatureExtractor",
    "feature_size": 80,
    "hop_length": 160,
    "n_fft": 400,
    "n_samples": 480000,
    "nb_max_frames": 3000,
    "padding_side": "right",
    "padding_value": 0.0,
    "processor_class": "WhisperProcessor",
    "return_attention_mask": False,
    "sampling_rate": 16000,
}
NOTE = "Trained on synthetic telephone speech only (espeak-ng, flite). For demonstrations and tests; no use on real voices."


def write_folder(spec, tokenizer, out, max_chunk_seconds):
    """Write the model files, the manifest and the checksums; whatever else lies in `out` (this recipe) stays."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as fresh:
        spec.save(fresh)
        for name in ("config.json", "model.bin", "vocabulary.json"):
            shutil.copy(Path(fresh) / name, out / name)
    shutil.copy(tokenizer, out / "tokenizer.json")
    (out / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR, indent=1) + "\n")
    words = json.loads((out / "vocabulary.json").read_text())
    (out / "vocabulary.json").write_text(json.dumps(words, ensure_ascii=False, separators=(",", ":")))
    manifest = {"demo": True, "max_chunk_seconds": max_chunk_seconds, "languages": ["en", "es", "de"], "note": NOTE}
    (out / "switchboard.json").write_text(json.dumps(manifest, indent=2) + "\n")
    write_checksums(out)


def write_checksums(out):
    """SHA256SUMS over every file directly in `out`, in the format of sha256sum."""
    files = sorted(path for path in out.iterdir() if path.is_file() and path.name not in ("SHA256SUMS", "README.md"))
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (out / "SHA256SUMS").write_text("".join(lines))
    print("".join(f"{path.name} {path.stat().st_size}\n" for path in files), end="")


def main():
    work, ckpt, out = sys.argv[1:4]
    quant = sys.argv[4] if len(sys.argv) > 4 else "int8"
    max_chunk_seconds = float(sys.argv[5]) if len(sys.argv) > 5 else 8.0
    torch.set_num_threads(1)
    net = M.Whisper(data.N_CTC, data.N_PH)
    net.load_state_dict(torch.load(ckpt)["net"], strict=False)
    net.eval()
    hf = to_hf(net)
    # parity of the training model and the exported one
    with torch.no_grad():
        mel = torch.randn(1, 80, 3000)
        ids = torch.tensor([[tok.SOT, tok.LANG["en"], tok.TRANSCRIBE, tok.NOTS, 300, 400]])
        h, _ = net.model.decoder(
            torch.tensor([[tok.compact(int(i)) for i in ids[0]]]), net.model.encoder(mel, torch.tensor([0]))
        )
        a = h @ net.model.decoder.embed_tokens.weight.T
        b = hf(input_features=mel, decoder_input_ids=ids).logits
        b = torch.cat([b[..., : tok.N_TEXT], b[..., tok.EOT :], b[..., tok.N_TEXT : tok.N_TEXT + 1]], -1)
        print("largest logit difference training/exported:", float((a - b).abs().max()))
    g = hf.generation_config
    g.lang_to_id = {f"<|{l}|>": i for l, i in tok.LANG.items()}
    g.alignment_heads = [[M.DEC - 1, h] for h in range(M.GUIDED)]
    t = Tokenizer.from_file(f"{work}/tokenizer.json")
    g.begin_suppress_tokens = [t.encode(" ", add_special_tokens=False).ids[0], tok.EOT]
    spec = WhisperLoader()(hf, TokenizerStub(f"{work}/tokenizer.json"))
    spec.validate()
    if quant != "float32":
        spec.optimize(quantization=quant)
    write_folder(spec, f"{work}/tokenizer.json", Path(out), max_chunk_seconds)


if __name__ == "__main__":
    main()
