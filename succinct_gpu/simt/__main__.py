"""``python -m succinct_gpu.simt script.py``: run a script with its kernels on the CPU."""

import argparse
import runpy
import sys
from pathlib import Path

from succinct_gpu import simt


def main() -> None:
    """Run the script or module that the command line names."""
    parser = argparse.ArgumentParser(
        prog="python -m succinct_gpu.simt",
        description="Run a Python script with every Numba-CUDA kernel executed on the CPU.",
    )
    parser.add_argument("--schedule", choices=simt.SCHEDULES, default="in-order")
    parser.add_argument("--seed", type=int, default=0, help="of the random schedule")
    parser.add_argument(
        "--no-memory-check",
        action="store_true",
        help="do not look for accesses outside arrays (a wild one may then crash Python)",
    )
    parser.add_argument("--race-check", action="store_true", help="look for data races too")
    parser.add_argument(
        "--counters", action="store_true", help="print what every launch did to standard error"
    )
    parser.add_argument("-m", "--module", action="store_true", help="SCRIPT names a module")
    parser.add_argument("script", metavar="SCRIPT", help="a Python file, or a module with -m")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="for the script")
    options = parser.parse_args()
    try:
        simt.enable(
            schedule=options.schedule,
            seed=options.seed,
            memory_check=not options.no_memory_check,
            race_check=options.race_check,
        )
    except (ImportError, ValueError) as error:
        parser.error(str(error))
    sys.argv = [options.script, *options.arguments]
    with simt.record() as seen:
        try:
            if options.module:
                runpy.run_module(options.script, run_name="__main__", alter_sys=True)
            else:
                sys.path.insert(0, str(Path(options.script).resolve().parent))
                runpy.run_path(options.script, run_name="__main__")
        finally:
            if options.counters:
                for launch in seen.launches:
                    numbers = (f"{name}={n}" for name, n in launch.counters._asdict().items())
                    print(launch.name, *numbers, file=sys.stderr)


if __name__ == "__main__":
    main()
