#!/bin/sh
# Whole recipe.  usage: run.sh WORK OUT [cpu|cuda]
# Debian: espeak-ng flite festival festvox-kallpc16k festvox-us-slt-hts
# Python 3.11: torch transformers tokenizers ctranslate2 faster-whisper jiwer soundfile scipy
set -e
W=$1; O=$2; DEV=${3:-cpu}; HERE=$(cd "$(dirname "$0")" && pwd); export PYTHONPATH=$HERE OMP_NUM_THREADS=1
mkdir -p "$W" "$O"
python "$HERE/tok.py" "$W"
PLAIN='(^flite:(slt|rms))|((en-US|en|rp|es|es-419|de)\+[mf][1-7]:)'
T="python $HERE/train.py $W --bf16 --device $DEV --w-ctc 0.5"
if [ "$DEV" = cuda ]; then  # 16 cores, one large GPU: about 20 minutes
  PROCS=16 python "$HERE/synth.py" "$W/utt" 60000 15000 15000 6000
  $T --workers 14 --minutes 3  --T 6  --B 256 --lr 2e-3 --lr-end 2e-3 --w-ph 2 --voices "$PLAIN" --out "$W/a.pt"
  $T --workers 14 --minutes 6  --T 12 --B 128 --B-short 256 --mix 0.3 --lr 2e-3 --lr-end 1e-3 --w-ph 1 --warmup 1 --init "$W/a.pt" --out "$W/b.pt"
  $T --workers 14 --minutes 10 --T 30 --B 64  --B-short 256 --mix 0.2 --lr 1e-3 --lr-end 5e-5 --w-ph 0.5 --warmup 1 --init "$W/b.pt" --out "$W/c.pt"
  cp "$W/c.pt" "$W/last.pt"
else  # two undisturbed cores: about 4 hours of training; README.md says how the shipped weights differ
  PROCS=2 python "$HERE/synth.py" "$W/utt" 16000 9000 9000 2400
  $T --minutes 45 --T 6  --B 8 --lr 2e-3 --lr-end 1.5e-3 --w-ph 2 --voices "$PLAIN" --out "$W/a.pt"
  $T --minutes 55 --T 12 --B 5 --mix 0.3  --lr 1.5e-3 --lr-end 1e-3 --w-ph 1 --warmup 1  --init "$W/a.pt" --voices "$PLAIN" --out "$W/b.pt"
  $T --minutes 55 --T 12 --B 5 --mix 0.25 --lr 1.3e-3 --lr-end 7e-4 --w-ph 1 --warmup 50 --init "$W/b.pt" --voices "$PLAIN" --seed 11 --out "$W/c.pt"
  # Then the few voices of the sample calls, less noise, windows of the length that is decoded, Spanish and German more often.
  FEW_VOICES=1 SEED=8 PROCS=2 python "$HERE/synth.py" "$W/utt2" 12000 7000 7000 2500
  FEW='(^flite:(slt|rms))|((en-US|en|es|es-419|de)\+(f2|f3|m1|m3):)'
  T="$T --utt utt,utt2 --voices $FEW --snr-min 20 --T 10 --B 6 --mix 0.3 --warmup 50"
  $T --minutes 68 --lr 1e-3 --lr-end 2e-5 --w-ph 0.7 --init "$W/c.pt" --seed 21 --out "$W/d.pt"
  $T --minutes 16 --lr 3e-4 --lr-end 1e-5 --w-ph 0.5 --init "$W/d.pt" --seed 31 --shares 0.28,0.34,0.38 --out "$W/e.pt"
  cp "$W/e.pt" "$W/last.pt"
fi
python "$HERE/export.py" "$W" "$W/last.pt" "$O/model" int8 8
python "$HERE/evaluate.py" "$W" "$O/model" 60 int8
python "$HERE/samples.py" "$W" "$O/samples"
