"""From the sender's URL, past the address guard, into our own store of recordings."""
