"""Packs, runs and reports the figures of a GPU: see docs/guide/gpu.md.

python -m experiments.bench.gpu_kit pack FOLDER [--small] [--python 3.12]
python -m experiments.bench.gpu_kit run FOLDER --out OUT [--stages NAME ...] [--on device|cpu] [--seconds S]
    [--again]
python -m experiments.bench.gpu_kit report OUT
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from experiments.bench.gpu_kit import _report, _run
from experiments.bench.gpu_kit._stages import STAGES


def main(arguments: list[str] | None = None) -> int:
    """The command line; the exit code is 1 where a stage failed."""
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("gpu_kit", description=__doc__, formatter_class=shape)
    commands = parser.add_subparsers(dest="command", required=True)
    pack = commands.add_parser("pack", help="make the folder that is carried to the machine")
    pack.add_argument("folder", type=Path)
    pack.add_argument("--python", default="3.12", help="version on that machine (3.12)")
    pack.add_argument(
        "--small", action="store_true", help="for a rehearsal here: no wheels, no data, sizes of seconds"
    )
    run = commands.add_parser("run", help="take the figures")
    run.add_argument("folder", type=Path)
    run.add_argument("--out", type=Path, required=True, help="folder of the figures, which are added to it")
    names = [stage.name for stage in STAGES]
    run.add_argument("--stages", nargs="+", choices=names, default=names, help="all, in this order")
    places = ("device", "cpu")
    run.add_argument("--on", nargs="+", choices=places, default=places, help="both, one beside the other")
    run.add_argument("--seconds", type=float, default=540.0, help="for all of them together (540)")
    run.add_argument("--again", action="store_true", help="stages too that OUT says to be done")
    report = commands.add_parser("report", help="print the tables of the figures")
    report.add_argument("out", type=Path)
    options = parser.parse_args(arguments)
    if options.command == "pack":
        from experiments.bench.gpu_kit import _pack

        return _pack.main(options.folder, options.small, options.python)
    if options.command == "run":
        told = options.folder, options.out, options.stages, options.seconds
        return _run.main(*told, on=options.on, again=options.again)
    print(_report.text(_report.read(options.out)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
