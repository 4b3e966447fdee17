"""What every moment of a channel holds: speech, silence, or a sound of the telephone network."""
