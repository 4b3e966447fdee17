"""How good what was recognized is: what people know of calls, its formats, and the comparison of machines with it.

Knows the domain's words only: neither a service nor a database. Its libraries are the extra `switchboard-calls[evaluation]`.
"""
