"""Sentiment: per turn, per party and over time, from words and, where allowed, from the voice."""
