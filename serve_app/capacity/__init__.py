"""How much hardware a number of calls takes, from what was measured: `plan` computes, `ratios.toml` has the figures."""
