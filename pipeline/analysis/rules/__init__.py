"""Findings by rules and small fitted weights: no language model, no network. One room per subject; numbers for all."""
