import re

HEAD_BYTES = 4096

NOT_AUDIO_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"PK\x05\x06", "a ZIP archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive"),
    (b"\x04\x22\x4d\x18", "an LZ4 archive"),
    (b"\x1f\x9d", "a compress archive"),
    (b"MSCF", "a cabinet archive"),
    (b"!<arch>\n", "an ar archive"),
    (b"\x89PNG\r\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"\x7fELF", "a program"),
    (b"MZ\x90", "a program"),
    (b"SQLite format 3\x00", "a database"),
    (b"SWBSEAL1", "a sealed recording"),
)

TEXT_FORMS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(<!doctype html|<html|<head|<body)", re.IGNORECASE), "an HTML page"),
    (re.compile(r"(<\?xml|<[a-z][\w:.-]*[\s/>])", re.IGNORECASE), "an XML document"),
    (re.compile(r"[\[{]\s*([\"\[{\]}]|-?\d|true|false|null)"), "a JSON document"),
    (re.compile(r"(#EXTM3U|\[playlist\]|ffconcat version)", re.IGNORECASE), "a playlist"),
)

TEXT_TYPES = re.compile(r"text/|application/(problem\+)?json|application/(xhtml\+)?xml|application/.*(mpegurl|\+json)")

AUDIO_TYPES = (  # magic bytes, offset, media type
    (b"RIFF", 0, "audio/wav"),
    (b"OggS", 0, "audio/ogg"),
    (b"fLaC", 0, "audio/flac"),
    (b"ID3", 0, "audio/mpeg"),
    (b"ftyp", 4, "audio/mp4"),
    (b"#!AMR", 0, "audio/amr"),
    (b"\x1aE\xdf\xa3", 0, "audio/webm"),
    (b".snd", 0, "audio/basic"),
)
OTHER_AUDIO_MAGIC = (b"RF64", b"FORM", b"caff", b"riff")
UNKNOWN = "application/octet-stream"

# Formats without a header, by the ending that telephone systems give their files.
TYPES_BY_ENDING = {
    b".ulaw": "audio/x-mulaw",
    b".ul": "audio/x-mulaw",
    b".mulaw": "audio/x-mulaw",
    b".pcmu": "audio/x-mulaw",
    b".alaw": "audio/x-alaw",
    b".al": "audio/x-alaw",
    b".pcma": "audio/x-alaw",
    b".g722": "audio/g722",
    b".g729": "audio/g729",
    b".sln": "audio/x-sln",
    b".sln16": "audio/x-sln16",
}
UNSPECIFIC = frozenset({"", UNKNOWN, "binary/octet-stream", "application/x-binary"})


def media_type(declared: str | None, path: bytes) -> str | None:
    """Return the declared type; where it says nothing, that of the file's ending, if a file like it has no header."""
    if (declared or "").partition(";")[0].strip().lower() not in UNSPECIFIC:
        return declared
    ending = path[path.rfind(b".") :].lower() if b"." in path else b""
    return TYPES_BY_ENDING.get(ending, declared)


def detect_type(head: bytes, media_type: str | None = None) -> str | None:
    """Name the type of a file that is certainly not audio; None otherwise. `head`: its first `HEAD_BYTES`.

    `media_type` alone is not enough, since servers declare audio as text: it decides only if the bytes do not.
    """
    for magic, name in NOT_AUDIO_MAGIC:
        if head.startswith(magic):
            return name
    if head[257:262] == b"ustar":
        return "a tar archive"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "a WebP image"
    text = as_text(head)
    if text is not None:
        stripped = text.lstrip("\ufeff \t\r\n")
        return next((name for pattern, name in TEXT_FORMS if pattern.match(stripped)), "plain text")
    if media_type and TEXT_TYPES.match(media_type.lower()) and not is_known_audio(head):
        return f"something the server calls {_plain(media_type)}"
    return None


def is_known_audio(head: bytes) -> bool:
    """Return whether the file begins like a well-known audio container."""
    return head.startswith(OTHER_AUDIO_MAGIC) or media_type_of(head) != UNKNOWN


def media_type_of(head: bytes) -> str:
    """Return the media type by the first bytes of a file: the declared type is not trusted."""
    for magic, at, name in AUDIO_TYPES:
        if head[at : at + len(magic)] == magic:
            return name
    return "audio/mpeg" if len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0 else UNKNOWN


def suffix_of(media_type: str) -> str:
    """Return the suffix of a file name, without a dot."""
    return media_type.removeprefix("audio/") if media_type.startswith("audio/") else "bin"


def as_text(head: bytes) -> str | None:
    """Return `head` as text if all of it is printable."""
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    try:
        text = head.decode(encoding)
    except UnicodeDecodeError as error:
        if len(head) - error.start > 3:  # more than a character cut off at the end
            return None
        text = head[: error.start].decode(encoding)
    printable = sum(character.isprintable() or character in "\r\n\t\f\ufeff" for character in text)
    return text if text and printable >= 0.98 * len(text) else None


def _plain(media_type: str) -> str:
    return re.sub(r"[^\w./+-]", "", media_type.partition(";")[0])[:60]
