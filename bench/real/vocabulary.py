"""Does it help a checkpoint to be given names and terms, and does it hurt the other words?

    python -m bench.real.vocabulary --half development [--model tiny.en] [--call mulaw]

A call is recognized three times by the same engine: without vocabulary, with the names that are said in it, and with
those among 40 that are not, as a team's list is mostly names that nobody says. Set `SWITCHBOARD_ASR__VOCABULARY=on` if
more names are right with the team's list and no more words are wrong.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.real.calls import Truth
from bench.real.catalog import compose
from bench.real.normalize import words
from bench.real.outputs import SystemOutput
from bench.real.score import align, said_of, tokens_of, written
from bench.real.sources import Half, Sources
from bench.real.systems import Switchboard

NAMES: dict[Half, tuple[str, ...]] = {
    "development": ("Margaret", "Hale", "Thornton", "Helstone", "apomorphine", "rigor mortis", "emetic", "post-mortem"),
    "report": ("Nuzhat al-Zaman", "Zau al-Makan", "Lobster a la Newberg", "Delmonico", "San Francisco", "crayfish"),
}
OTHERS = (
    *("Ackermann", "Beaulieu", "Castellanos", "Dvorak", "Eriksson", "Fitzgerald", "Gupta", "Hernandez", "Ivanova"),
    *("Jablonski", "Kowalczyk", "Lindqvist", "Moretti", "Nakamura", "Okonkwo", "Petrov", "Quigley", "Rasmussen"),
    *("Schneider", "Takahashi", "Ueda", "Vasquez", "Wojcik", "Xiong", "Yilmaz", "Zimmermann", "Acme Logistics"),
    *("Blue Harbor", "Cobalt", "Datastream", "Evergreen", "Fairview", "Globex", "Helios", "Initech", "Juniper"),
    *("Keystone", "Lumina", "Meridian", "Northwind"),
)


def main() -> None:
    """Print names right and words wrong, each way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", choices=tuple(NAMES), required=True)
    parser.add_argument("--model", default="tiny.en", help="as SWITCHBOARD_ASR__MODEL")
    parser.add_argument("--diarization", default="auto", help="as SWITCHBOARD_DIARIZATION__PIPELINE")
    parser.add_argument("--call", default="mulaw", help="a stereo call of bench.real.catalog")
    parser.add_argument("--librispeech", type=Path)
    parser.add_argument("--asterisk", type=Path)
    args = parser.parse_args()
    call = compose(args.call, Sources(args.librispeech, args.asterisk), args.half)
    truth, names = Truth.of(call.truth()), NAMES[args.half]
    system = Switchboard(args.model, args.model, args.diarization, vocabulary="on")
    with tempfile.TemporaryDirectory() as folder:
        path = call.write(Path(folder))
        for way, given in (("without", ()), ("names said", names), ("team's list", (*names, *OTHERS))):
            wrong, said, right, of = count(truth, system(path, terms=given), names)
            print(f"{way}: {wrong} of {said} words wrong ({100 * wrong / said:.1f} %), {right} of {of} names right")


def count(truth: Truth, output: SystemOutput, names: Sequence[str]) -> tuple[int, int, int, int]:
    """Words wrong, words said, names right (all their words), names said; channel by channel."""
    wrong = total = right = of = 0
    for channel in range(truth.channels):
        said = said_of(truth, [index for index, event in enumerate(truth.events) if event.channel == channel])
        heard = written([word for word in output.words if word.channel == channel])
        pairs = align(said, tokens_of(heard, truth.language))
        wrong, total = wrong + sum(not pair.right for pair in pairs), total + len(said)
        hit = {pair.said for pair in pairs if pair.right}
        spoken = [one.token for one in said]
        for name in (words(name) for name in names):
            for at in range(len(spoken) - len(name) + 1):
                if spoken[at : at + len(name)] == name:
                    of += 1
                    right += hit.issuperset(range(at, at + len(name)))
    return wrong, total, right, of


if __name__ == "__main__":
    main()
