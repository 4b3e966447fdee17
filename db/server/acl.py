"""Grants one user traversal of a folder that stays closed to all others, by an access control list (POSIX.1e)."""

import os
import stat
import struct
from pathlib import Path

ATTRIBUTE = "system.posix_acl_access"
VERSION = struct.Struct("<I")
ENTRY = struct.Struct("<HHI")  # tag, permissions, number of the user or group
OWNER, USER, GROUP, MASK, OTHERS = 0x01, 0x02, 0x04, 0x10, 0x20  # tags, in the order required by the kernel
NO_NUMBER = 0xFFFFFFFF  # in entries without a user or group
TRAVERSE = 1  # without reading

Entry = tuple[int, int, int]


def grant_traverse(folder: Path, user: int) -> None:
    """Let the user with this number traverse `folder` if they cannot yet; no other user gains access.

    Raises `OSError` if the file system has no access control lists, or the folder belongs to another user.
    """
    status = folder.stat()
    if status.st_uid == user or status.st_mode & TRAVERSE:
        return
    entries = _read(folder, status.st_mode)
    permissions = {(tag, number): permission for tag, permission, number in entries}
    permissions[USER, user] = permissions.get((USER, user), 0) | TRAVERSE
    # The mask limits users and groups of the list: without a mask, the limit is the group's permission.
    mask = permissions.get((MASK, NO_NUMBER), permissions[GROUP, NO_NUMBER])
    permissions[MASK, NO_NUMBER] = mask | TRAVERSE
    packed = (ENTRY.pack(tag, permissions[tag, number], number) for tag, number in sorted(permissions))
    os.setxattr(folder, ATTRIBUTE, VERSION.pack(2) + b"".join(packed))


def _read(folder: Path, mode: int) -> list[Entry]:
    try:
        raw = os.getxattr(folder, ATTRIBUTE)
    except OSError:
        bits = stat.S_IMODE(mode)
        return [(OWNER, bits >> 6 & 7, NO_NUMBER), (GROUP, bits >> 3 & 7, NO_NUMBER), (OTHERS, bits & 7, NO_NUMBER)]
    return [ENTRY.unpack_from(raw, offset) for offset in range(VERSION.size, len(raw), ENTRY.size)]
