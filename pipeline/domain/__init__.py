"""The words of the trade: frozen dataclasses that every package shares. Standard library and numpy only."""
