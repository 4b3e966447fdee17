"""Runs the work of a call: in threads of this process, or on a Ray cluster (`actors` and `background` import Ray)."""
