"""People: who the agent is, what the other party says about themselves, and which known contact that makes them."""
