"""Labels for every moment of a channel: speech, silence, or a sound of the telephone network."""
