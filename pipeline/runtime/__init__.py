"""Where the work of a call runs: threads of this process, or a Ray cluster (`actors`, the only Ray imports)."""
