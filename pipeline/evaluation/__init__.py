"""How good what was recognized is: what people know of calls, and its formats.

Knows the domain's words only: neither a service nor a database. What reads and writes the formats is the extra
`switchboard-calls[evaluation]`.
"""
