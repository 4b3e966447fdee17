"""What made the weights that ship: corpora, and the scripts that fit them. The service imports nothing of it."""
