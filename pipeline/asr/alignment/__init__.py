from pipeline.asr.alignment.engine import ENGINES, Aligner, AlignmentOptions, load

__all__ = ["ENGINES", "Aligner", "AlignmentOptions", "load"]
