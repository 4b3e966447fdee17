"""`python -m db.migrations` adds the digest of today's functions to those of the versions before.

`python -m db.migrations release` notes besides which columns the release that is made now uses: no later migration may
take one of them away until a release after it has been without it.
"""

import sys

from db.migrations import DIGESTS, RELEASED, digest, used_columns

known = DIGESTS.read_text(encoding="utf-8").split()
if known[-1:] != [digest()]:
    DIGESTS.write_text("\n".join([*(one for one in known if one != digest()), digest(), ""]), encoding="utf-8")
if sys.argv[1:] == ["release"]:
    RELEASED.write_text("\n".join([*sorted(used_columns()), ""]), encoding="utf-8")
