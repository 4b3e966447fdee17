"""Sample calls with known words, and the play in which they go through the whole service."""
