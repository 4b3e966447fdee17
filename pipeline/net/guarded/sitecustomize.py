"""Python imports this at its start: processes of Ray that import nothing of ours get the guard of egress as well."""

from pipeline.net import egress

if egress.is_denied():
    egress.install()
