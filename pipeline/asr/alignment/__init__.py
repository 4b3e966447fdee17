"""Words of a known text to their times: aligners behind one protocol, for engines whose model gives none."""

from pipeline.asr.alignment.engine import ENGINES, Aligner, AlignmentOptions, aligner_class, load

__all__ = ["ENGINES", "Aligner", "AlignmentOptions", "aligner_class", "load"]
