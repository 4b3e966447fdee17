"""Storage of pressed keys: always their number; the digits only if enabled and not possibly a card's.

Card numbers have 12 to 19 digits (ISO/IEC 7812), entered at once or in groups with pauses, followed by the date and the
security code, which must not be stored (PCI DSS 3.3). Check digits are not verified: with a missed key a card number
would pass for something else.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pipeline.domain.speech import Label, LabelKind

MAX_DIGITS = 11  # of one entry; longer ones may contain a card number
ENTRY_SECONDS = 30.0  # max. between two keys of one entry: time to turn the card over
AFTER_SECONDS = 120.0  # after a withheld entry, further entries are withheld

Labels = tuple[tuple[Label, ...], ...]  # of each channel


def without_digits(labels: Labels, keep_digits: bool) -> Labels:
    """Return the labels with the number of `keys`, without digits unless they are enabled and cannot be a card's."""
    harmless = _harmless(labels) if keep_digits else set()
    return tuple(tuple(_counted(label, id(label) in harmless) for label in channel) for channel in labels)


def _counted(label: Label, keep: bool) -> Label:
    if label.kind is not LabelKind.DTMF:
        return label
    return replace(label, keys=len(label.detail or ""), detail=label.detail if keep else None)


def _harmless(labels: Labels) -> set[int]:
    """Return the `id` of each label whose digits may be stored."""
    harmless: set[int] = set()
    withheld_until = float("-inf")
    for entry in _entries(labels):
        end = max(label.end for label in entry)
        if _digits(entry) > MAX_DIGITS or entry[0].start <= withheld_until:
            withheld_until = end + AFTER_SECONDS
        else:
            harmless |= {id(label) for label in entry}
    return harmless


def _entries(labels: Labels) -> Iterator[list[Label]]:
    """Yield the keys of all channels in order of time, split at pauses of `ENTRY_SECONDS`."""
    keys = (label for channel in labels for label in channel if label.kind is LabelKind.DTMF)
    pressed = sorted(keys, key=lambda label: label.start)
    entry: list[Label] = []
    end = 0.0
    for label in pressed:
        if entry and label.start - end > ENTRY_SECONDS:
            yield entry
            entry = []
        entry.append(label)
        end = max(end, label.end)
    if entry:
        yield entry


def _digits(entry: Sequence[Label]) -> int:
    """Count the digits of an entry; the same digits on two channels at the same time count once."""
    counted: list[tuple[Label, str]] = []
    for label in entry:
        digits = "".join(key for key in label.detail or "" if key.isdigit())
        twin = any(
            other.start < label.end and label.start < other.end and digits in earlier for other, earlier in counted
        )
        counted.append((label, "" if twin else digits))
    return sum(len(digits) for _, digits in counted)
