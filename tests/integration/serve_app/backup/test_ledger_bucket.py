"""The copies of the ledger in a bucket."""

import os
import subprocess
import sys

import pytest

from tests import s3_server
from tests.paths import ROOT
from tests.s3_server import Bucket, Faults

pytestmark = pytest.mark.slow

RUN = """
import sys
from datetime import UTC, datetime
from uuid import UUID
from db.records.ledger import Entry
from pipeline.errors import StorageError
from serve_app.backup.ledger_copies import LedgerCopies

copies = LedgerCopies("s3://here/recordings", ("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",))
at = datetime(2026, 11, 28, tzinfo=UTC)
first = Entry(UUID(int=1), 1, at, "call", "", "operator", None, {"jobs": 1}, [bytes(32)], b"").with_hash()
second = Entry(UUID(int=1), 2, at, "call", "", "operator", None, {}, [], first.hash).with_hash()
if sys.argv[1] == "write":
    assert copies.read() == {}
    copies.set_aside()
    for entry in (first, second, second):
        copies.write(entry)
    assert copies.read() == {UUID(int=1): [first, second]}
if sys.argv[1] == "refused":
    for use in (copies.read, lambda: copies.write(first), copies.set_aside):
        try:
            use()
        except StorageError as error:
            print(error.message)
if sys.argv[1] == "aside":
    assert copies.read() == {UUID(int=1): [first, second]}
    copies.set_aside()
    assert copies.read() == {}
    copies.write(first)
    assert copies.read() == {UUID(int=1): [first]}
"""


def run(bucket: Bucket, what: str) -> str:
    path = {"PYTHONPATH": f"{ROOT}{os.pathsep}{bucket.environment['PYTHONPATH']}"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        [sys.executable, "-c", RUN, what], env=environment | bucket.environment | path,
        text=True, capture_output=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_copies_in_a_bucket() -> None:
    with s3_server.bucket("here") as bucket:
        run(bucket, "write")
        bucket.faults(Faults(down_after=0))
        refused = run(bucket, "refused").splitlines()
        bucket.faults(Faults())
        run(bucket, "aside")
    assert [message.split(" (")[0] for message in refused] == [
        "The ledger of erasures cannot be read",
        "An entry of the ledger could not be stored",
        "The ledger could not be set aside",
    ]
