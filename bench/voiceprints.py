"""Are members known by voice, and does audio that is not theirs change what they sound like?

    python bench/voiceprints.py [--people held-out|tuning] [--pipeline demo] [--json FILE] [--quick]

Needs espeak-ng, which makes the voices (`apt-get install espeak-ng`). Two thirds of the synthetic people are members,
the others customers. Each has several calls over lines of their own; a third of these only ask whose voice it is. Then
some of the members' calls are spoilt: the channels swapped, a customer heard beneath the rep all the time, two voices
one after the other; and the same calls teach again, once through the gate and once by the rule that stands for having
none (the five latest samples, the most similar one decides).

The thresholds were set on the people called tuning. The demo checkpoint was trained on neither group; its clustering
was tuned on recordings of the first.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import voices
from bench.voices import Person
from pipeline.diarization import DiarizationOptions, Engine, load
from pipeline.domain.speech import Heard, Layout, LayoutKind, Voiceprint
from pipeline.domain.voices import Profile, Sample
from pipeline.speakers.gate import judged
from pipeline.speakers.profile import centroids_of, learn
from pipeline.speakers.scales import scale
from pipeline.speakers.voiceprint import Match, match

CLEAN = Heard(Layout(LayoutKind.STEREO, 2, 2, 1.0, {}, "generated"), 60.0, ((), ()), ())
SECONDS = (14.0, 30.0)
BLEED_DB = (-15.0, -6.0)
KINDS = ("swapped", "bleed", "two voices")
Known = dict[str, list[Voiceprint]]


@dataclass(frozen=True)
class Call:
    """The rep's voice in a call, and whose it truly is."""

    key: str
    owner: str
    voiceprint: Voiceprint
    spoilt: str = ""


class Studio:
    """Makes voiceprints of calls; `seed` makes them again."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self._engine = engine
        self._seed = seed

    def call(self, person: Person, number: int, other: Person | None = None, spoilt: str = "") -> Voiceprint:
        """One call of a person; `other` is the customer whose voice gets into it."""
        name = int.from_bytes(person.name.encode(), "little") % 2**32
        rng = np.random.default_rng([self._seed, name, number, KINDS.index(spoilt) + 1 if spoilt else 0])
        seconds = rng.uniform(*SECONDS)
        sound = voices.speak(person, seconds, rng)
        if other is not None and spoilt == "bleed":
            under = np.resize(voices.speak(other, seconds, rng), len(sound))
            sound = sound + np.float32(10 ** (rng.uniform(*BLEED_DB) / 20)) * under
        elif other is not None and spoilt == "two voices":
            share = rng.uniform(0.25, 0.5)
            second = voices.speak(other, seconds * share, rng)
            sound = np.concatenate([sound[: round(len(sound) * (1 - share))], second])
        made = self._engine.voiceprint([voices.at_16_khz(voices.on_the_line(sound, rng))])
        found = judged(made, CLEAN)
        if found is None:
            raise SystemExit(f"No voiceprint of {seconds:.0f} s of {person.name}.")
        return found


def taught(history: Mapping[str, Sequence[Call]]) -> dict[str, Profile]:
    """The profiles of all members, each against the others' own centroids."""
    samples = {name: [Sample(call.key, call.voiceprint) for call in calls] for name, calls in history.items()}
    own = {name: [one.voiceprint for one in centroids_of(made)] for name, made in samples.items()}
    return {name: learn(made, {other: own[other] for other in own if other != name}) for name, made in samples.items()}


def known_by(profiles: Mapping[str, Profile]) -> Known:
    return {name: [one.voiceprint for one in profile.centroids] for name, profile in profiles.items()}


def ungated(history: Mapping[str, Sequence[Call]]) -> Known:
    """The reference: the five latest samples of each member, whatever they hold."""
    return {name: [call.voiceprint for call in calls[-5:]] for name, calls in history.items()}


def decide(known: Known, probes: Sequence[Call]) -> list[str | None]:
    found: list[Match | None] = [match(probe.voiceprint, known) for probe in probes]
    return [one.name if one else None for one in found]


def equal_error(same: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> tuple[float, float]:
    """The rate at which as many are falsely rejected as accepted, and its cosine."""
    at = np.sort(np.concatenate([same, other]))
    rejected = np.searchsorted(np.sort(same), at) / len(same)
    accepted = 1 - np.searchsorted(np.sort(other), at) / len(other)
    best = int(np.argmin(np.abs(rejected - accepted)))
    return float((rejected[best] + accepted[best]) / 2), float(at[best])


def trials(known: Known, probes: Sequence[Call]) -> dict[str, float]:
    """Every probe against every member: the verification figures."""
    same: list[float] = []
    other: list[float] = []
    for probe in probes:
        for name, prints in known.items():
            like = max((float(np.dot(probe.voiceprint.vector, p.vector)) for p in prints), default=-1.0)
            (same if name == probe.owner else other).append(like)
    rate, at = equal_error(np.array(same), np.array(other))
    threshold = scale(probes[0].voiceprint.model).threshold
    return {
        "equal error rate": rate,
        "its cosine": at,
        "threshold": threshold,
        "false accepts at the threshold": float(np.mean(np.array(other) >= threshold)),
        "false rejects at the threshold": float(np.mean(np.array(same) < threshold)),
    }


def named(known: Known, probes: Sequence[Call], strangers: Sequence[Call]) -> dict[str, float]:
    """Open set, with threshold and margin: members' calls, and those of people whom nobody enrolled."""
    found = decide(known, probes)
    wrong = sum(name is not None and name != probe.owner for name, probe in zip(found, probes, strict=True))
    right = sum(name == probe.owner for name, probe in zip(found, probes, strict=True))
    left_out = [
        decide({other: prints for other, prints in known.items() if other != probe.owner}, [probe])[0]
        for probe in probes
    ]
    asked = [*left_out, *decide(known, strangers)]
    return {
        "members named right": right / len(probes),
        "members named wrong": wrong / len(probes),
        "members not named": 1 - (right + wrong) / len(probes),
        "strangers named": sum(name is not None for name in asked) / len(asked),
        "strangers": float(len(asked)),
    }


def spoil(
    history: Mapping[str, Sequence[Call]],
    members: Sequence[Person],
    customers: Sequence[Person],
    studio: Studio,
    share: float,
    seed: int,
) -> dict[str, list[Call]]:
    """The same calls, `share` of each kind spoilt."""
    rng = np.random.default_rng([seed, 1])
    by_name = {person.name: person for person in members}
    places = [(name, at) for name, calls in history.items() for at in range(len(calls))]
    order = [places[at] for at in rng.permutation(len(places))]
    each = max(1, round(share * len(places)))
    made = {name: list(calls) for name, calls in history.items()}
    for kind_at, kind in enumerate(KINDS):
        for name, at in order[kind_at * each : (kind_at + 1) * each]:
            other = customers[int(rng.integers(len(customers)))]
            if kind == "swapped":
                print_ = studio.call(other, 1000 + int(rng.integers(1000)))
            else:
                print_ = studio.call(by_name[name], at, other, kind)
            made[name][at] = Call(made[name][at].key, name, print_, kind)
    return made


def drift(before: Known, after: Known) -> list[float]:
    """1 - cosine of each member's main centroid before and after; members without one at either time are left out."""
    return [
        1 - float(np.dot(before[name][0].vector, after[name][0].vector))
        for name in before
        if before[name] and after.get(name)
    ]


def changed(before: Sequence[str | None], after: Sequence[str | None], probes: Sequence[Call]) -> dict[str, float]:
    counts: Counter[str] = Counter()
    for was, now, probe in zip(before, after, probes, strict=True):
        if was != now:
            counts["named wrong now" if now not in (None, probe.owner) else "else changed"] += 1
    return {
        "decisions": len(probes),
        "named wrong now": counts["named wrong now"],
        "else changed": counts["else changed"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--people", choices=("held-out", "tuning"), default="held-out")
    parser.add_argument(
        "--pipeline", default="demo", help="diarization checkpoint, as SWITCHBOARD_DIARIZATION__PIPELINE"
    )
    parser.add_argument("--device", default="cpu", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--calls", type=int, default=12, help="calls of each member; a third only ask")
    parser.add_argument(
        "--share", type=float, default=0.1, help="of the calls that teach, spoilt in each of three ways"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="nine people, nine calls each")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    voices.require()
    engine = load(DiarizationOptions(pipeline=options.pipeline, device=options.device, threads=1))
    people = voices.people(voices.HELD_OUT if options.people == "held-out" else voices.TUNING)
    if options.quick:
        people, options.calls = people[::3], 9
    figures = run(people, Studio(engine, options.seed), options)
    show(figures)
    if options.json:
        about = {"engine": engine.name, "people": options.people, "seed": options.seed}
        options.json.write_text(json.dumps(about | figures, indent=2) + "\n", encoding="utf-8")


def run(people: Sequence[Person], studio: Studio, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """All figures by table."""
    customers, members = people[::3], [person for at, person in enumerate(people) if at % 3]
    asking = options.calls // 3
    history: dict[str, list[Call]] = {}
    probes: list[Call] = []
    for at, person in enumerate(members):
        made = [Call(f"{person.name} {n:02}", person.name, studio.call(person, n)) for n in range(options.calls)]
        history[person.name], probes = made[asking:], [*probes, *made[:asking]]
        print(f"\r{at + 1} of {len(members)} members", end="", file=sys.stderr, flush=True)
    strangers = [
        Call(f"{person.name} {n}", person.name, studio.call(person, n)) for person in customers for n in range(asking)
    ]
    print(file=sys.stderr)
    clean = taught(history)
    spoilt = spoil(history, members, customers, studio, options.share, options.seed)
    return {
        "about": {"members": len(members), "customers": len(customers), "calls of each member": options.calls},
        "whose voice": trials(known_by(clean), probes) | named(known_by(clean), probes, strangers),
        **spoilt_figures(history, spoilt, [*probes, *strangers]),
    }


def spoilt_figures(
    history: Mapping[str, Sequence[Call]], spoilt: Mapping[str, Sequence[Call]], asked: Sequence[Call]
) -> dict[str, dict[str, float]]:
    """What spoilt calls do to profiles and decisions."""
    before, after = known_by(taught(history)), taught(spoilt)
    figures: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        verdicts = [
            after[name].verdicts[call.key] for name, calls in spoilt.items() for call in calls if call.spoilt == kind
        ]
        reasons = Counter(reason for verdict in verdicts for reason in verdict.reasons)
        figures[f"spoilt: {kind}"] = {
            "calls": len(verdicts),
            "taught all the same": sum(v.standing == "taught" for v in verdicts),
            **dict(reasons),
        }
    sound = [after[name].verdicts[call.key] for name, calls in spoilt.items() for call in calls if not call.spoilt]
    figures["sound calls beside them"] = {
        "calls": len(sound),
        "not taught": sum(verdict.standing != "taught" for verdict in sound),
    }
    was = decide(before, asked)
    with_gate, without = known_by(after), ungated(spoilt)
    moved = drift(before, with_gate)
    figures["with the gate"] = {
        **changed(was, decide(with_gate, asked), asked),
        "most drift of a centroid": max(moved),
        "mean drift": float(np.mean(moved)),
    }
    figures["the five latest, no gate"] = changed(decide(ungated(history), asked), decide(without, asked), asked)
    return figures


def show(figures: Mapping[str, Mapping[str, float]]) -> None:
    for title, values in figures.items():
        print(title)
        for name, value in values.items():
            print(f"  {name:<34}{value:>10.4g}")


if __name__ == "__main__":
    main()
