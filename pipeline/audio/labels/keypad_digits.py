"""What may be kept of keys pressed: how many, and which only where a workspace asks and no card can be among them.

Card numbers have 12 to 19 digits (ISO/IEC 7812), typed in one go or in groups with pauses; behind them follow the date
and the security code, which nobody may keep (PCI DSS 3.3). Check digits are not looked at: a key that was missed would
make a card number pass for something else.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pipeline.domain.speech import Label, LabelKind

MOST_DIGITS = 11  # of one entry; longer ones may hold a card number, alone or with what was typed beside it
ENTRY_SECONDS = 30.0  # between two keys of one entry at most: time to turn the card over
AFTER_SECONDS = 120.0  # behind an entry that is withheld, others are withheld as well

Labels = tuple[tuple[Label, ...], ...]  # of each channel


def without_digits(labels: Labels, keep_digits: bool) -> Labels:
    """The same labels, with `keys` for keys pressed and no digits, unless they are to be kept and no card's."""
    kept = _harmless(labels) if keep_digits else set()
    return tuple(tuple(_counted(label, id(label) in kept) for label in channel) for channel in labels)


def _counted(label: Label, keep: bool) -> Label:
    if label.kind is not LabelKind.DTMF:
        return label
    return replace(label, keys=len(label.detail or ""), detail=label.detail if keep else None)


def _harmless(labels: Labels) -> set[int]:
    """By `id`, the labels of keys that may be kept."""
    found: set[int] = set()
    withheld_until = float("-inf")
    for entry in _entries(labels):
        end = max(label.end for label in entry)
        if _digits(entry) > MOST_DIGITS or entry[0].start <= withheld_until:
            withheld_until = end + AFTER_SECONDS
        else:
            found |= {id(label) for label in entry}
    return found


def _entries(labels: Labels) -> Iterator[list[Label]]:
    """Keys of all channels in order of time, divided where nobody pressed any for `ENTRY_SECONDS`."""
    pressed = sorted((one for own in labels for one in own if one.kind is LabelKind.DTMF), key=lambda one: one.start)
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
    """How many there are; what two channels heard alike at the same time counts once."""
    counted: list[tuple[Label, str]] = []
    for label in entry:
        own = "".join(key for key in label.detail or "" if key.isdigit())
        twin = any(one.start < label.end and label.start < one.end and own in heard for one, heard in counted)
        counted.append((label, "" if twin else own))
    return sum(len(digits) for _, digits in counted)
