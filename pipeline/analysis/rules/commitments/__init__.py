"""Commitments: clauses that oblige somebody to act after the call, and the tasks they make."""
