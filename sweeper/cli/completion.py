"""The shell's completion: what may stand next in a command line, and the code that has bash, zsh and fish ask.

Hydra has one as well, which loads and composes everything for each Tab, knows nothing of parameters' levels, and
changes bash's word breaks for all other commands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from sweeper.cli.catalogue import chosen_kernel, described, groups, kernel_node, options
from sweeper.cli.command_line import config_dirs
from sweeper.cli.keys import FLAGS, KEYS, Key
from sweeper.errors import ConfigError

__all__ = ["candidates", "completion", "wanted"]

_SHELLS = ("bash", "zsh", "fish")
_LAUNCHERS = ("basic", "joblib", "ray", "submitit_local", "submitit_slurm")

_SCRIPTS = {
    "bash": r"""_sweeper() {
    local line="${COMP_LINE:0:COMP_POINT}"
    local word="${line##* }"
    mapfile -t COMPREPLY < <(COMP_LINE="$line" "$1" --shell-completion query=bash 2>/dev/null)
    # Where = ends a word for bash, what stands before it is typed already.
    if [[ "$word" == *=* && "$COMP_WORDBREAKS" == *=* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${word%%=*}="}")
    fi
    if [[ ${#COMPREPLY[@]} -eq 1 && "${COMPREPLY[0]}" == *[=./] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o default -F _sweeper sweeper
""",
    "zsh": r"""_sweeper() {
    local line
    local -a values shown
    while IFS= read -r line; do
        values+=("${line%%$'\t'*}")
        shown+=("${line/$'\t'/  -- }")
    done < <(COMP_LINE="${(j: :)words[1,CURRENT]}" "$words[1]" --shell-completion query=zsh 2>/dev/null)
    (( $#values )) && compadd -Q -S '' -l -d shown -a values
}
compdef _sweeper sweeper
""",
    "fish": r"""function __sweeper
    set -lx COMP_LINE (commandline -cp | string collect)
    set -l words (commandline -opc)
    $words[1] --shell-completion query=fish 2>/dev/null
end
complete -c sweeper -f -a '(__sweeper)'
""",
}
_REMOVED = {
    "bash": "complete -r sweeper; unset -f _sweeper\n",
    "zsh": "compdef -d sweeper; unfunction _sweeper\n",
    "fish": "complete -e -c sweeper; functions -e __sweeper\n",
}


def wanted(argv: Sequence[str]) -> str | None:
    """What `--shell-completion` or `-sc` asks for in `argv`; None where neither is there."""
    for place, word in enumerate(argv):
        if word in ("-sc", "--shell-completion"):
            return argv[place + 1] if place + 1 < len(argv) else ""
        if word.startswith("--shell-completion="):
            return word.partition("=")[2]
    return None


def completion(asked: str) -> str:
    """The answer to `--shell-completion=ASKED`: a shell's code, or what may follow the line in COMP_LINE.

    Raises ConfigError for anything else.
    """
    what, _, shell = asked.partition("=")
    if shell not in _SHELLS or what not in ("install", "uninstall", "query"):
        raise ConfigError(
            f"--shell-completion {asked or 'without a value'}: neither install=SHELL nor uninstall=SHELL",
            hint=f"SHELL is one of {', '.join(_SHELLS)}",
        )
    if what == "install":
        return _SCRIPTS[shell]
    if what == "uninstall":
        return _REMOVED[shell]
    found = candidates(os.environ.get("COMP_LINE", ""))
    return "".join(
        f"{value}\t{about}\n" if about and shell != "bash" else f"{value}\n" for value, about in found
    )


def candidates(line: str) -> list[tuple[str, str]]:
    """The words that may stand where `line` (the program's name, and all up to the cursor) ends, and what they are."""
    words = line.split(" ")[1:]
    word = words.pop() if words else ""
    before = [w for w in words if w]
    folders = [path.expanduser() for path in config_dirs(before)]
    last = before[-1] if before else ""
    if last in ("--config-dir", "-cd"):
        return _paths(word)
    if last in ("--cfg", "-c"):
        return [(each, "") for each in ("job", "hydra", "all") if each.startswith(word)]
    if last in ("--shell-completion", "-sc"):
        return [(f"install={shell}", "") for shell in _SHELLS if f"install={shell}".startswith(word)]
    if word.startswith("-"):
        return [(flag, about) for flag, about in FLAGS.items() if flag.startswith(word)]
    prefix = re.match(r"[+~]*", word)[0]  # type: ignore[index]  # it matches anything
    bare = word[len(prefix) :]
    key, sign, value = bare.partition("=")
    found = _values(key, value, before, folders) if sign else _keys(bare, before, folders)
    return [(f"{prefix}{each}", about) for each, about in found]


def _keys(word: str, before: Sequence[str], folders: Sequence[Path]) -> list[tuple[str, str]]:
    """Groups and keys that begin with `word`; of a section the next level only."""
    found: dict[str, str] = {}
    for name, about in _all_keys(before, folders):
        if name.startswith(word):
            rest = name[len(word) :]
            section, dot, _ = rest.partition(".")
            full = f"{word}{section}." if dot else f"{name}="
            found.setdefault(full, "" if dot else about)
    return sorted(found.items())


def _all_keys(before: Sequence[str], folders: Sequence[Path]) -> Iterator[tuple[str, str]]:
    for group in groups():
        yield group, f"one of {len(options(group, folders))}"
    for key in KEYS:
        yield key.name, key.meaning
    node = _kernel(before, folders)
    for size in _sizes(node):
        yield f"shape.{size}", "a size of the problem"
    for param in _params(node):
        yield f"kernel.params.{param}", "a parameter of the kernel"
    for name, about in (("dtype", "the precision class"), ("layout", "which operands are stored transposed")):
        yield f"kernel.{name}", about
    yield "hydra/launcher", "what runs the jobs of a multirun"


def _values(key: str, value: str, before: Sequence[str], folders: Sequence[Path]) -> list[tuple[str, str]]:
    """What may stand after `key=`; after a comma the next of a list."""
    done, comma, last = value.rpartition(",")
    known = {each.name: each for each in KEYS}.get(key, Key(key, ""))
    if known.is_path:
        return [(f"{key}={path}", about) for path, about in _paths(value)]
    taken = set(done.split(",")) if comma else set()
    head = f"{key}={done}{comma}"
    return [
        (f"{head}{each}", about)
        for each, about in _choices(known, before, folders)
        if each.startswith(last) and each not in taken
    ]


def _choices(key: Key, before: Sequence[str], folders: Sequence[Path]) -> Iterator[tuple[str, str]]:
    if key.name in groups():
        for name, path in options(key.name, folders).items():
            yield name, described(path)
    elif key.name == "search.name":
        yield from ((name, described(path)) for name, path in options("search", folders).items())
    elif key.name == "baseline":
        yield from (("[]", "none"), ("[cublas]", ""), ("[cublas,cublaslt]", ""))
    elif key.name == "hydra/launcher":
        yield from ((name, "") for name in _LAUNCHERS)
    elif key.name == "kernel.dtype":
        listed = _kernel(before, folders).get("dtypes")
        yield from ((str(name), "") for name in (listed if isinstance(listed, list) else ["float32"]))
    elif key.name == "kernel.layout":
        yield from ((name, "") for name in ("nn", "nt", "tn", "tt"))
    elif key.name.startswith("kernel.params."):
        levels = _params(_kernel(before, folders)).get(key.name.rpartition(".")[2])
        yield from ((str(level), "") for level in (levels if isinstance(levels, list) else []))
    else:
        yield from ((choice, "") for choice in key.choices)


def _kernel(before: Sequence[str], folders: Sequence[Path]) -> dict[str, object]:
    path = options("kernel", folders).get(chosen_kernel(before))
    return kernel_node(path) if path else {}


def _params(node: dict[str, object]) -> dict[str, object]:
    params = node.get("params")
    return dict(params) if isinstance(params, dict) else {}


def _sizes(node: dict[str, object]) -> Iterable[str]:
    dims = node.get("dims")
    listed = dims if isinstance(dims, list) else [dims] if isinstance(dims, dict) else []
    return [str(name).lower() for item in listed for name in (item if isinstance(item, dict) else [item])]


def _paths(typed: str) -> list[tuple[str, str]]:
    """The files and folders that begin with `typed`; a folder ends with a slash."""
    folder, slash, start = typed.rpartition("/")
    try:
        found = sorted(Path(folder or ("/" if slash else ".")).expanduser().iterdir())
    except OSError:
        return []
    shown = [
        path for path in found if path.name.startswith(start) and (start or not path.name.startswith("."))
    ]
    return [(f"{folder}{slash}{path.name}{'/' if path.is_dir() else ''}", "") for path in shown]
