"""Nine calls of synthetic voices with known words: fast tests run them on the small fixture checkpoints.

They say nothing about quality: both voices and checkpoints are synthetic. Real calls: `serve_app.demo.samples`.
"""

from pathlib import Path

from serve_app.demo.samples import Sample, load_samples

FOLDER = Path(__file__).with_name("fixtures") / "calls"


def synthetic_calls() -> list[Sample]:
    """Return the calls in the order of their names."""
    return load_samples(FOLDER)
