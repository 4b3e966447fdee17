"""WhisperX on files named on standard input, one by one; run by `throughput.py` in WhisperX's own environment.

Recognition with its batched pipeline, then diarization. No forced alignment: its weights have to be downloaded. Prints
the seconds, elapsed and of processors, without loading, as JSON.
"""

import json
import os
import sys
import time

os.environ["PYANNOTE_METRICS_ENABLED"] = "0"


def main() -> None:
    import torch
    import whisperx
    from pyannote.audio import Pipeline

    model_folder, pipeline_folder, threads, batch = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(threads)
    model = whisperx.load_model(
        model_folder, "cpu", compute_type="int8", language="en", threads=threads, vad_method="pyannote"
    )
    pipeline = Pipeline.from_pretrained(pipeline_folder)
    files = sys.stdin.read().split("\n")
    started, processor = time.perf_counter(), time.process_time()
    for file in files:
        audio = whisperx.load_audio(file)
        result = model.transcribe(audio, batch_size=batch, language="en")
        waveform = torch.from_numpy(audio)[None]
        pipeline({"waveform": waveform, "sample_rate": 16000}, max_speakers=2)
        assert result["segments"]
    used = {"seconds": time.perf_counter() - started, "processor": time.process_time() - processor}
    print(json.dumps(used))


if __name__ == "__main__":
    main()
