"""Which words of real speech are wrong, lost, invented or doubted, compared with faster-whisper?

    python -m bench.real calls --half development --folder build/calls
    python -m bench.real run   --half development --folder build/real [--model tiny.en] [--call mulaw]
    python -m bench.real figures [--json FILE]

`run` stores every output in the folder and computes only missing ones. `figures` scores the stored outputs of this
repository; it needs no recording and no model. Six commands measure parts of the pipeline on real speech:
announcements, doubt, labels, mono (diarization of mixed calls), telephone (calls over real lines) and voices. Each has
its own --help.
"""

import argparse
import importlib
import json
import sys
from pathlib import Path

from bench.real import figures, outputs, tables
from bench.real.catalog import CATALOG, compose
from bench.real.sources import SourceMissing, Sources
from bench.real.systems import RAW_WAYS, Raw, Switchboard

MODELS = {"tiny.en": "whisper-tiny.en", "base": "whisper-base"}  # by the name in settings, the one in the store
PARTS = ("announcements", "doubt", "labels", "mono", "telephone", "voices")
SYSTEMS = ("switchboard", *RAW_WAYS)
ON_BASE = (  # calls that are run with base as well: it takes twice the time
    *("mulaw", "amr-4.75", "music-10", "mixed", "menu", "single-words"),
    *("music-mulaw", "noises"),
)
FOREIGN = ("prompts-es", "prompts-fr", "prompts-it", "prompts-ru")


def calls_of(model: str) -> list[str]:
    """Return the calls to run with a model: all but other languages with tiny.en, some with base."""
    if model == "base":
        return [*ON_BASE, *FOREIGN]
    return [name for name in CATALOG if name not in FOREIGN]


def run(args: argparse.Namespace) -> None:
    """Run systems over calls; FOLDER/HALF/calls holds the calls, FOLDER/HALF/LABEL/*.json.gz the outputs."""
    sources = Sources(args.librispeech, args.asterisk)
    root = args.folder / args.half
    for model in args.model:
        systems: dict[str, Switchboard | Raw] = {}
        for name in [name for name in (args.call or calls_of(model)) if name in calls_of(model)]:
            path = root / "calls" / f"{name}.wav"
            if not path.is_file():
                compose(name, sources, args.half).write(path.parent)
            for system in args.system:
                label = args.label if system == "switchboard" else "raw"
                target = root / label / f"{name}.{model}.{system}.jsonl.gz"
                if target.is_file():
                    continue
                if system not in systems:
                    systems[system] = load(system, model, args)
                output = systems[system](path)
                outputs.write(target, [output])
                spent = ", ".join(f"{part} {value:.1f}" for part, value in output.seconds.items())
                print(f"{label} {name} {model} {system}: {len(output.words)} words; {spent} s", flush=True)


def load(system: str, model: str, args: argparse.Namespace) -> Switchboard | Raw:
    """Load the system with its checkpoint."""
    from pipeline.asr.whisper_model import CHECKPOINTS
    from pipeline.checkpoints import resolve

    name = model if args.checkpoints is None else str(args.checkpoints / MODELS[model])
    if system == "switchboard":
        return Switchboard(model, name, args.diarization, engine=args.diarization_engine)
    return Raw(system, model, resolve(name, CHECKPOINTS, "cpu").folder)


def make_calls(args: argparse.Namespace) -> None:
    """Compose every call of a half into FOLDER/HALF/calls."""
    sources = Sources(args.librispeech, args.asterisk)
    for name in args.call or CATALOG:
        call = compose(name, sources, args.half)
        path = call.write(args.folder / args.half / "calls")
        print(f"{path}: {call.group}, {call.duration:.0f} s, {len(call.events)} events", flush=True)


def keep(args: argparse.Namespace) -> None:
    """Gather the outputs of a half into files to be scored: truths, and one file for each label."""
    figures.gather(args.folder / args.half, args.target)


def show(args: argparse.Namespace) -> None:
    """Score kept outputs, print every table and draw charts; --json also stores the figures."""
    results = figures.figures(args.outputs)
    print(tables.show(results))
    for model in (model for model in MODELS if model in results):
        tables.words_wrong(results, model, args.charts / f"words-wrong-{model}.png")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.real", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    scoring = commands.add_parser("figures", help=show.__doc__)
    scoring.set_defaults(command=show)
    scoring.add_argument("--outputs", type=Path, default=outputs.FOLDER, help="folder of gathered outputs")
    scoring.add_argument("--charts", type=Path, default=Path("build/figures"), help="folder for charts (PNG)")
    scoring.add_argument("--json", type=Path, metavar="FILE", help="store the figures")
    for name, command in (("calls", make_calls), ("run", run), ("gather", keep)):
        command_parser = commands.add_parser(name, help=(command.__doc__ or "").split(";", maxsplit=1)[0])
        command_parser.set_defaults(command=command)
        command_parser.add_argument("--half", choices=("development", "report"), required=True)
        command_parser.add_argument("--folder", type=Path, required=True, help="where calls and outputs are kept")
        if command is keep:
            command_parser.add_argument("--target", type=Path, required=True, help="folder for the gathered files")
            continue
        command_parser.add_argument(
            "--call", action="append", choices=tuple(CATALOG), help="only this one; may be repeated"
        )
        command_parser.add_argument(
            "--librispeech", type=Path, help="folder with test-other and train-clean-100 (LIBRISPEECH)"
        )
        command_parser.add_argument(
            "--asterisk", type=Path, help="folder with Debian's packages unpacked (ASTERISK_SOUNDS)"
        )
        if command is run:
            command_parser.add_argument("--model", action="append", choices=tuple(MODELS))
            command_parser.add_argument("--system", action="append", choices=SYSTEMS)
            command_parser.add_argument(
                "--label", default="switchboard", help="what this revision's outputs are kept as"
            )
            command_parser.add_argument("--diarization", default="auto", help="diarization pipeline: a name or folder")
            command_parser.add_argument("--diarization-engine", default="pyannote", help="or clustering")
            command_parser.add_argument(
                "--checkpoints", type=Path, help="folder that holds whisper-tiny.en and whisper-base"
            )
    for name in PARTS:
        commands.add_parser(name, help=f"see python -m bench.real {name} --help")
    return parser.parse_args()


def main() -> None:
    """Run a command; exit with its message where a source is missing."""
    if sys.argv[1:] and sys.argv[1] in PARTS:
        importlib.import_module(f"bench.real.{sys.argv[1]}").main(sys.argv[2:])
        return
    args = _arguments()
    args.model = getattr(args, "model", None) or list(MODELS)
    args.system = getattr(args, "system", None) or list(SYSTEMS)
    try:
        args.command(args)
    except SourceMissing as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
