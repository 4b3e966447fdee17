from pipeline.asr.alignment.engine import ENGINES, Aligner, AlignmentOptions, aligner_class, load

__all__ = ["ENGINES", "Aligner", "AlignmentOptions", "aligner_class", "load"]
