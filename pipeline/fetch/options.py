from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from pipeline.fetch.address import AllowedHosts, Ports


class FetchOptions(BaseModel):
    """Options of fetching: limits, allowed hosts and ports, trusted authorities."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    MAX_REDIRECTS: ClassVar[int] = 3  # each target is checked like the first address

    CONNECT_SECONDS: ClassVar[float] = 10.0  # for a connection and for TLS
    READ_SECONDS: ClassVar[float] = 60.0  # without a byte from the server
    MIN_BYTES_PER_SECOND: ClassVar[float] = 500.0  # a slower body, for `slow_seconds`, is abandoned and retried
    MAX_RESUMES: ClassVar[int] = 4  # range requests for the rest of an interrupted recording, per fetch

    max_bytes: int = Field(1 << 30, gt=0, description="Largest recording, in bytes.")
    max_seconds: float = Field(600.0, gt=0, description="Longest time for one fetch, redirects included.")
    slow_seconds: float = Field(30.0, gt=0, description="How long a body may be too slow.")
    allowed_hosts: AllowedHosts = Field(
        (),
        description="Hosts inside your network that recordings of every workspace may be fetched from: names, "
        "addresses, networks (CIDR), optionally with a port (pbx.local:8088). For one workspace: "
        "`switchboard workspaces hosts`.",
    )
    ports: Ports = Field(
        ("80", "443", "1024-65535"),
        description="Ports that may be fetched from, except those of databases, caches, orchestration and remote "
        "control.",
    )
    ca_file: str | None = Field(
        None,
        description="PEM file of additional certificate authorities, for recordings and webhooks.",
    )
