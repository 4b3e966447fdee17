"""Findings by rules and small fitted weights, without a language model and network."""
