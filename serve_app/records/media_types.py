_FORMS = (  # magic bytes, offset, media type: the declared type is not trusted
    (b"RIFF", 0, "audio/wav"),
    (b"OggS", 0, "audio/ogg"),
    (b"fLaC", 0, "audio/flac"),
    (b"ID3", 0, "audio/mpeg"),
    (b"ftyp", 4, "audio/mp4"),
    (b"#!AMR", 0, "audio/amr"),
    (b"\x1aE\xdf\xa3", 0, "audio/webm"),
    (b".snd", 0, "audio/basic"),
)


def media_type_of(head: bytes) -> str:
    """Return the media type by the first bytes of a file."""
    for magic, at, media_type in _FORMS:
        if head[at : at + len(magic)] == magic:
            return media_type
    return "audio/mpeg" if len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0 else "application/octet-stream"


def suffix_of(media_type: str) -> str:
    """Return the suffix of a file name, without a dot."""
    return media_type.removeprefix("audio/") if media_type.startswith("audio/") else "bin"
