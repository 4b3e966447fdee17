"""Recognition and diarization judged on real speech: calls with known truth, systems, scores, figures."""
