"""Feed the readers anything at all, until it is stopped or something other than one of our own errors comes out.

    python tools/fuzz.py [TARGET] [--seconds 60] [--corpus FOLDER]

With atheris (`pip install atheris`) inputs follow the branches that they reach; without it they are random changes
of what was tried before. TARGET is one of those in `tests/fuzz_targets.py`. An input that breaks one is written to
`fuzz-TARGET.bin`, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

targets = importlib.import_module("fuzz_targets")
TARGETS: dict[str, Callable[[bytes], None]] = targets.TARGETS

SEEDS = {
    "expression": [b"ceil(M / tile) * N <= 64 and tile % 2 == 0", b"min(M, 3) if N > 1 else tile ** 2"],
    "kernel_yaml": [targets.saxpy_text()],
    "table": [b"a,b,time_ms\n1,2,0.5\n", b'{"results": [], "schema_version": "1.0.0"}'],
    "stored": [targets.store_bytes()],
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", nargs="?", choices=sorted(TARGETS), help="all of them in turn without it")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--corpus", type=Path, help="a folder of inputs to begin from, for atheris")
    given = parser.parse_args(argv)
    chosen = [given.target] if given.target else sorted(TARGETS)
    if given.target and _atheris(TARGETS[given.target], given.seconds, given.corpus):
        return 0
    return max(_mutate(name, given.seconds) for name in chosen)


def _atheris(target: Callable[[bytes], None], seconds: float, corpus: Path | None) -> bool:
    """Let atheris do it, which ends the process; False where it is not installed."""
    if importlib.util.find_spec("atheris") is None:
        return False
    atheris = importlib.import_module("atheris")
    atheris.instrument_all()
    arguments = [sys.argv[0], f"-max_total_time={int(seconds)}", *([str(corpus)] if corpus else [])]
    atheris.Setup(arguments, target)
    atheris.Fuzz()
    return True


def _mutate(name: str, seconds: float) -> int:
    """Change what was tried before at random; 1 where an input broke the target."""
    chance = random.Random(name)  # noqa: S311 - inputs, not secrets
    kept, tried, end = list(SEEDS[name]), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        content = bytearray(chance.choice(kept))
        for _ in range(chance.randint(1, 6)):
            at = chance.randrange(len(content) + 1)
            piece = (
                chance.choice(kept)[: chance.randint(1, 40)] if chance.random() < 0.3 else chance.randbytes(2)
            )
            content[at : at + chance.choice([0, 1, 2, len(piece)])] = piece
        try:
            TARGETS[name](bytes(content))
        except Exception:
            Path(f"fuzz-{name}.bin").write_bytes(content)
            traceback.print_exc()
            print(f"{name}: broken by fuzz-{name}.bin")
            return 1
        tried += 1
        if chance.random() < 0.02:
            kept.append(bytes(content[:20_000]))
    print(f"{name}: {tried} inputs in {seconds:.0f} s, each taken or refused")
    return 0


if __name__ == "__main__":
    sys.exit(main())
