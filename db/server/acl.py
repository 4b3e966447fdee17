"""Lets one user pass through a folder that stays closed to everybody else, by an access control list (POSIX.1e)."""

import os
import stat
import struct
from pathlib import Path

ATTRIBUTE = "system.posix_acl_access"
VERSION = struct.Struct("<I")
ENTRY = struct.Struct("<HHI")  # tag, permissions, number of the user or group
OWNER, USER, GROUP, MASK, OTHERS = 0x01, 0x02, 0x04, 0x10, 0x20  # tags, in the order in which the kernel wants them
NOBODY = 0xFFFFFFFF  # the number in entries that need none
PASS = 1  # to pass through, not to read

Entry = tuple[int, int, int]


def let_pass(folder: Path, user: int) -> None:
    """Let the user with this number pass through `folder`, if they may not yet; nobody else gains anything.

    Raises `OSError` where the file system has no access control lists, or the folder is not ours to open.
    """
    found = folder.stat()
    if found.st_uid == user or found.st_mode & PASS:
        return
    entries = _read(folder, found.st_mode)
    permissions = {(tag, number): granted for tag, granted, number in entries}
    permissions[USER, user] = permissions.get((USER, user), 0) | PASS
    # The mask bounds what users and groups of the list may do: without one so far, that is what the group may.
    mask = permissions.get((MASK, NOBODY), permissions[GROUP, NOBODY])
    permissions[MASK, NOBODY] = mask | PASS
    listed = (ENTRY.pack(tag, permissions[tag, number], number) for tag, number in sorted(permissions))
    os.setxattr(folder, ATTRIBUTE, VERSION.pack(2) + b"".join(listed))


def _read(folder: Path, mode: int) -> list[Entry]:
    """The folder's list: what it has, or what its mode says."""
    try:
        raw = os.getxattr(folder, ATTRIBUTE)
    except OSError:
        bits = stat.S_IMODE(mode)
        return [(OWNER, bits >> 6 & 7, NOBODY), (GROUP, bits >> 3 & 7, NOBODY), (OTHERS, bits & 7, NOBODY)]
    return [ENTRY.unpack_from(raw, offset) for offset in range(VERSION.size, len(raw), ENTRY.size)]
