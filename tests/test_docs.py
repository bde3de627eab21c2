"""What the documentation says is what the program does: its commands run, its tables are the code's own."""

from __future__ import annotations

import copy
import dataclasses
import os
import re
import runpy
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from sweeper.build.options import normalize_options
from sweeper.cli.app import main
from sweeper.config import BackendConfig, MeasureConfig, SearchConfig
from sweeper.device.target import TARGETS
from sweeper.dtypes import DTYPES
from sweeper.errors import ConfigError
from sweeper.kernel import load
from sweeper.model import KernelSpec, Stage, Status, TimeSource
from sweeper.search import REGISTRY
from sweeper.search.optuna_sampler import SAMPLERS
from sweeper.table import COLUMNS, best_per_shape, frame

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CONF = ROOT / "conf"
README = ROOT / "README.md"
KERNELS, RESULTS, SWEEPS = (DOCS / f"{name}.md" for name in ("kernels", "results", "sweeps"))
PAGES = (README, ROOT / "CHANGELOG.md", *sorted(DOCS.glob("*.md")))
TEXTS = (
    *PAGES,
    ROOT / "SECURITY.md",
    *(
        page
        for folder in ("kernels", "results", "tests/recorded")
        for page in sorted((ROOT / folder).rglob("*.md"))
    ),
)
EXAMPLES = sorted((DOCS / "examples").glob("*/*.yaml"))
SAXPY = DOCS / "examples" / "saxpy" / "saxpy.yaml"


class Block(NamedTuple):
    """A fenced block of a page: its language, its text, the line it begins on and the heading above it."""

    page: str
    line: int
    language: str
    text: str
    heading: str


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        above = re.findall(r"^#+ (.*)$", prose(text[: match.start()]), re.MULTILINE)
        line = text.count("\n", 0, match.start()) + 1
        yield Block(page.name, line, match[1], match[2], above[-1] if above else "")


def prose(text: str) -> str:
    """A page with its fenced blocks blanked: what is left stands where it stood."""
    return re.sub(
        r"^```.*?^```$", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.DOTALL | re.MULTILINE
    )


def section(page: Path, heading: str) -> str:
    """What stands under `heading`, up to the next of its level or a higher one."""
    text = page.read_text(encoding="utf-8")
    start = re.search(rf"^(#+) {re.escape(heading)}$", prose(text), re.MULTILINE)
    assert start, f"{page.name} has no heading {heading!r}"
    end = re.compile(rf"^#{{1,{len(start[1])}}} ", re.MULTILINE).search(prose(text), start.end())
    return text[start.end() : end.start() if end else None]


def tables(text: str) -> list[list[list[str]]]:
    """The tables of a text: rows of cells, without the header."""
    found = re.findall(r"(?:^\|.*\|$\n?)+", prose(text), re.MULTILINE)
    return [[[c.strip() for c in row[1:-1].split("|")] for row in t.splitlines()[2:]] for t in found]


def table(page: Path, heading: str, first: str) -> list[list[str]]:
    """The table under `heading` that has a row beginning with the cell `first`."""
    return next(t for t in tables(section(page, heading)) if any(row[0] == first for row in t))


def bare(cell: str) -> str:
    return cell.strip("`").strip()


def in_backticks(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


# Commands


def commands(block: Block) -> list[list[str]]:
    typed = (line for line in block.text.splitlines() if line.startswith("python "))
    lines = [shlex.split(line, comments=True) for line in typed]
    return [line[3:] for line in lines if line[:3] == ["python", "-m", "sweeper"]]


def runnable(command: list[str]) -> list[str]:
    """A documented command as it is run here: without a GPU, and within seconds.

    `backend=emulator` is added where the command names no backend, and `search.budget=2` where it names no
    budget and its shape is not `tiny`. Of the course's rungs, which all have tests of their own, three are run.
    Nothing else is changed.
    """
    added = []
    if "experiment=ladder" in command:
        added.append("kernel=uncoalesced,naive,split_k")
    if not any(word.startswith("backend=") for word in command):
        added.append("backend=emulator")
    named = any("shape=tiny" in word or word.startswith("search.budget=") for word in command)
    return [*command, *added, *([] if named else ["search.budget=2"])]


SHELL = [b for page in PAGES for b in blocks(page) if b.language == "sh" and commands(b)]


@pytest.mark.parametrize("block", SHELL, ids=lambda b: f"{b.page}:{b.line}")
def test_the_commands_of_a_page_run(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a folder that is empty but for `docs`, in the order of the page."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").symlink_to(DOCS)
    for command in commands(block):
        monkeypatch.setattr(sys, "argv", ["sweeper", *runnable(command)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_module("sweeper", run_name="__main__")
        captured = capsys.readouterr()
        assert not ended.value.code, f"{shlex.join(command)}\n{captured.out}{captured.err}"


SHOWN = [
    (b.page, b.line, command)
    for page in PAGES
    for b in blocks(page)
    if b.language == "text"
    for command in commands(b)
    # Jobs in processes of their own have tests of their own.
    if "hydra/launcher=joblib" not in command
]


@pytest.mark.parametrize(
    ("page", "line", "command"), SHOWN, ids=[f"{page}:{line}" for page, line, _ in SHOWN]
)
def test_the_commands_that_take_long_or_a_gpu_compose(
    page: str, line: int, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a page's `text` blocks are looked at and not run; a benchmark is composed only."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "h200").symlink_to(ROOT / "results" / "h200")
    look = ["--cfg", "job"] if "experiment=search_benchmark" in command else ["dry_run=true"]
    assert main([*command, *look]) == 0


BESIDE = sorted(
    {
        (line[2], word.partition("=")[0])
        for page in PAGES
        for b in blocks(page)
        if b.language in ("sh", "text")
        for line in (
            shlex.split(text, comments=True) for text in b.text.splitlines() if text.startswith("python -m ")
        )
        if line[2].startswith("sweeper.")
        for word in line[3:]
        if word.startswith("--")
    }
)


@pytest.mark.parametrize(("program", "option"), BESIDE)
def test_the_options_of_the_programs_beside_the_main_one_are_theirs(
    program: str, option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if option == "--config-dir" and program == "sweeper.check":
        return  # of the main program, whose words it takes as they are
    assert option in help_of(program, monkeypatch, capsys)


HELP: dict[str, str] = {}


def help_of(program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    if program not in HELP:
        monkeypatch.setattr(sys, "argv", [program, "--help"])
        with pytest.raises(SystemExit) as ended:
            runpy.run_module(program, run_name="__main__")
        assert not ended.value.code
        HELP[program] = capsys.readouterr().out
    return HELP[program]


def test_the_readme_and_every_guide_have_commands() -> None:
    assert {b.page for b in SHELL} >= {"README.md", "kernels.md", "sweeps.md"}


def test_every_shipped_kernel_and_shape_can_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    kernels = ",".join(p.stem for p in sorted((CONF / "kernel").glob("*.yaml")))
    shapes = ",".join(p.stem for p in sorted((CONF / "shape").glob("*.yaml")))
    # Sizes that every kernel can have, those for few rows or columns too.
    assert main(["-m", f"kernel={kernels}", "shape=16x16x64", "dry_run=true"]) == 0
    assert main(["-m", "kernel=tiled", f"shape={shapes}", "dry_run=true"]) == 0
    said = capsys.readouterr().out
    for kernel in kernels.split(","):
        assert re.search(rf"^{kernel} at \S*16x16x64: ", said, re.MULTILINE), kernel
    for shape in shapes.split(","):
        assert f"tiled at {shape}: " in said


# Links and paths


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings have: none where two headings share it, for its names differ by program."""
    headings = re.findall(r"^#+ (.*)$", prose(page.read_text(encoding="utf-8")), re.MULTILINE)
    slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    return {slug for slug in slugs if slugs.count(slug) == 1}


def links(page: Path) -> list[str]:
    """Where the links and pictures of a page lead, without those to other sites."""
    text = re.sub(r"`[^`\n]*`", "", prose(page.read_text(encoding="utf-8")))
    found = re.findall(r"\]\(([^)]*)\)|\b(?:src|href|srcset)=\"([^\"]*)\"", text)
    targets = (inline or of_html for inline, of_html in found)
    return [target for target in targets if not target.startswith(("http://", "https://"))]


@pytest.mark.parametrize("page", TEXTS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    """To a file or folder of the repository, by its exact name, and to a heading that is there."""
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = Path(os.path.normpath(page.parent / path)) if path else page
        assert file.is_relative_to(ROOT), f"{page.name}: {target}"
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(file), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_no_page_names_a_path_of_a_machine(page: Path) -> None:
    found = re.findall(
        r"(?<![\w.])/(?:home|root|work|Users|mnt|tmp|data|scratch)/\S*", page.read_text(encoding="utf-8")
    )
    assert not found


# Kernels


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {**copy.deepcopy(dict(base)), **changes}


def saxpy() -> dict[str, Any]:
    return dict(yaml.safe_load(SAXPY.read_text(encoding="utf-8")))


def shipped(name: str) -> dict[str, Any]:
    problem, own = (
        yaml.safe_load((CONF / f).read_text()) for f in ("problem/gemm.yaml", f"kernel/{name}.yaml")
    )
    return {key: value for key, value in {**problem, **own}.items() if key != "defaults"}


def test_the_readmes_kernel_is_the_examples() -> None:
    (block,) = (b for b in blocks(README) if b.language == "yaml")
    assert block.text == SAXPY.read_text(encoding="utf-8")


def test_what_the_readme_shows_of_a_terminal_was_recorded() -> None:
    recorded = (DOCS / "examples" / "terminal.txt").read_text(encoding="utf-8").splitlines()
    shown = [line for b in blocks(README) if b.language == "text" for line in b.text.splitlines()]
    assert [line for line in shown if line.strip() != "…" and line not in recorded] == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_example_loads_in_every_precision_it_lists(path: Path) -> None:
    node = yaml.safe_load(path.read_text(encoding="utf-8"))
    for name in node.get("dtypes", ["float32"]):
        assert load({**node, "dtype": name}, path).name == path.stem


def known_keys(changes: Mapping[str, Any]) -> list[str]:
    """The keys that a description may have, at the place where `changes` has an unknown one."""
    with pytest.raises(ConfigError) as error:
        load(merged(saxpy(), changes), SAXPY)
    return str(error.value).rpartition("known: ")[2].split(", ")


def test_every_key_of_a_description_is_documented_with_an_example() -> None:
    keys = known_keys({"unheard_of": 1})
    headings = re.findall(r"^### (.*)$", section(KERNELS, "Every key"), re.MULTILINE)
    assert headings == keys
    shown = {
        b.heading for b in blocks(KERNELS) if b.language == "yaml" and b.heading in yaml.safe_load(b.text)
    }
    assert shown == set(keys)


@pytest.mark.parametrize(
    ("heading", "changes"),
    [
        ("launch", {"launch": {"unheard_of": 1}}),
        ("requires", {"requires": {"unheard_of": 1}}),
        ("model", {"model": {"unheard_of": 1}}),
        ("reference", {"reference": {"contraction": "n->n", "unheard_of": 1}}),
        ("reference", {"reference": {"kernel": "saxpy_plain", "unheard_of": 1}}),
        ("reference", {"reference": {"python": "saxpy.py", "unheard_of": 1}}),
        ("args", {"args": [{"name": "x", "unheard_of": 1}]}),
        ("args", {"args": [{"name": "x", "scalar": "T", "unheard_of": 1}]}),
    ],
)
def test_the_keys_within_a_key_are_documented(heading: str, changes: Mapping[str, Any]) -> None:
    text = section(KERNELS, heading)
    for key in known_keys(changes):
        assert re.search(rf"`{key}`|\b{key}: ", text), f"{heading}.{key}"


FRAGMENTS = [b for b in blocks(KERNELS) if b.language == "yaml"]


@pytest.mark.parametrize("block", FRAGMENTS, ids=lambda b: f"{b.heading}:{b.line}")
def test_an_example_of_a_key_is_accepted(block: Block, tmp_path: Path) -> None:
    """In place of the same keys of `saxpy`, or of `tiled`; of `tma_pipeline` and `naive` what only these have."""
    for file in SAXPY.parent.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (code,) = (b for b in blocks(KERNELS) if b.language == "python")
    (tmp_path / "saxpy.py").write_text(code.text, encoding="utf-8")
    changes = yaml.safe_load(block.text)
    spec = accepted(changes, tmp_path / "saxpy.yaml")
    assert spec.options == normalize_options(spec.options)


def accepted(changes: Mapping[str, Any], path: Path) -> KernelSpec:
    try:
        return load(merged(saxpy(), changes), path)
    except ConfigError:
        layouts = {"layout", "layouts"} & set(changes)
        name = "tma_pipeline" if "tensor_maps" in changes else "naive" if layouts else "tiled"
        return load(merged(shipped(name), changes), CONF / "kernel" / f"{name}.yaml")


MISTAKES = table(KERNELS, "What is checked before any compile", "`parms: {}`")


@pytest.mark.parametrize(("written", "said"), MISTAKES)
def test_a_mistake_is_told_in_the_documented_words(written: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(merged(saxpy(), yaml.safe_load(bare(written))), SAXPY)
    assert bare(said) in " ".join(str(error.value).split())


def test_an_empty_space_and_an_undefined_macro_are_told_in_the_documented_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    own = ["--config-dir", str(SAXPY.parent), "kernel=saxpy", "shape.n=4096", "dry_run=true"]
    assert main([*own, "kernel.constraints=['block > 5000']"]) == 1
    assert main([*own, "~kernel.params.PER_THREAD", "kernel.launch.grid=['ceil(N / block)']"]) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("  ")]
    documented = "".join(b.text for b in blocks(KERNELS) if b.language == "text")
    assert said
    assert all(f"{line}\n" in documented for line in said)


def test_the_documented_options_are_the_allowed_ones() -> None:
    with pytest.raises(ConfigError) as error:
        normalize_options(["-Xcompiler"])
    rows = [bare(row[0]) for row in table(KERNELS, "options", "`-lineinfo`")]
    assert len(rows) == len(str(error.value).partition("allowed: ")[2].split("; "))
    for option in rows:
        assert normalize_options([option.replace("=N", "=64")])


# Results


def test_the_columns_are_the_documented_ones() -> None:
    rows = table(RESULTS, "trials.csv", "`study`")
    assert [(bare(name), unit, meaning) for name, unit, meaning in rows] == [
        (c.name, c.unit, c.meaning) for c in COLUMNS
    ]


def test_the_columns_of_best_csv_are_the_documented_ones() -> None:
    more = [bare(row[0]) for row in table(RESULTS, "best.csv", "`library`")]
    names = list(best_per_shape(frame([])).columns)
    assert names[-len(more) :] == more
    assert set(names[: -len(more)]) <= {c.name for c in COLUMNS}


def test_statuses_stages_and_sources_are_the_documented_ones() -> None:
    assert [bare(row[0]) for row in table(RESULTS, "Statuses", "`ok`")] == [s.value for s in Status]
    assert [bare(row[0]) for row in table(RESULTS, "Statuses", "`space`")] == [s.value for s in Stage]
    sources = table(RESULTS, "Where a time comes from", "`measured`")
    assert [bare(row[0]) for row in sources] == [s.value for s in TimeSource]


def test_what_is_asked_again_is_what_the_loop_asks_again() -> None:
    from sweeper.tune.loop import _REPEATABLE

    rows = table(RESULTS, "Statuses", "`ok`")
    assert {bare(row[0]) for row in rows if row[2] == "no"} == {s.value for s in _REPEATABLE}


def test_the_exit_codes_are_the_designs() -> None:
    (of_the_design,) = (t for t in tables((DOCS / "DESIGN.md").read_text(encoding="utf-8")) if t[0][0] == "0")
    assert table(RESULTS, "Exit codes", "0") == of_the_design


def test_a_results_folder_is_as_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its files, the keys of its provenance, and the Python that reads its store."""
    command = ["backend=emulator", "kernel=tiled", "shape=tiny", "search=grid", f"results_dir={tmp_path}"]
    assert main(command) == 0
    documented = [bare(row[0]) for row in table(RESULTS, "Results", "`study.db`")]
    # Predicted times are not confirmed, and no energy is measured.
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        {*documented} - {"confirmed.csv", "pareto.csv"}
    )

    (record,) = yaml.safe_load((tmp_path / "run.json").read_text(encoding="utf-8"))["runs"]
    keys = {key for row in table(RESULTS, "run.json", "`command`") for key in in_backticks(row[0])}
    assert keys - set(record) == {"error", "reproduces"}
    assert set(record) <= keys

    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    for block in (b for b in blocks(RESULTS) if b.language == "python"):
        exec(compile(block.text, f"results.md:{block.line}", "exec"), {})  # noqa: S102
    assert capsys.readouterr().out.splitlines() == [f"{n} ok {t} None" for n, t in ((1, 8), (2, 16), (3, 32))]


def test_the_tables_of_a_store_are_the_documented_ones() -> None:
    from sweeper.store.schema import metadata

    rows = table(RESULTS, "study.db", "`trials`")
    assert {bare(row[0]) for row in rows} == set(metadata.tables)


# Configuration


def settings(heading: str, first: str) -> dict[str, Any]:
    """The documented keys of a group with their defaults."""
    rows = table(SWEEPS, heading, first)
    return {bare(row[0]).rpartition(".")[2]: yaml.safe_load(bare(row[1])) for row in rows}


@pytest.mark.parametrize(
    ("group", "kind"), [("search", SearchConfig), ("measure", MeasureConfig), ("backend", BackendConfig)]
)
def test_the_keys_of_a_group_are_documented_with_their_defaults(group: str, kind: type) -> None:
    made = kind()
    own = {f.name: getattr(made, f.name) for f in dataclasses.fields(made)}
    composed = yaml.safe_load((CONF / group / f"{made.name}.yaml").read_text(encoding="utf-8"))
    assert settings(group, f"`{group}.name`") == {**own, **composed}


def test_the_other_keys_are_documented_with_their_defaults() -> None:
    composed = yaml.safe_load((CONF / "config.yaml").read_text(encoding="utf-8"))
    groups = {"defaults", "hydra", "shape", "build", "plan"}
    expected = {
        **composed["build"],
        **composed["plan"],
        **{k: v for k, v in composed.items() if k not in groups},
    }
    assert settings("Everything else", "`seed`") == expected


def choices(group: str) -> dict[str, dict[str, Any]]:
    return {p.stem: yaml.safe_load(p.read_text(encoding="utf-8")) for p in (CONF / group).glob("*.yaml")}


def test_the_shapes_are_the_documented_ones() -> None:
    rows = table(SWEEPS, "Shapes", "`tiny`")
    documented = {bare(row[0]): dict(zip("mnk", map(int, row[1:4]), strict=True)) for row in rows}
    assert documented == {name: {k: s[k] for k in "mnk"} for name, s in choices("shape").items()}


def test_the_searches_are_the_documented_ones() -> None:
    rows = table(SWEEPS, "search", "`grid`")
    assert {bare(row[0]) for row in rows} == set(REGISTRY) == set(choices("search"))
    for name, _, options in rows:
        sampler = SAMPLERS.get(bare(name))
        if sampler is not None:
            assert set(sampler.options) <= set(in_backticks(options))


def test_the_protocols_are_the_documented_ones() -> None:
    rows = table(SWEEPS, "measure", "`quick`")
    keys = ("warmup_ms", "min_samples", "max_samples", "max_seconds", "relative_width", "stop_factor")
    documented = {bare(row[0]): [yaml.safe_load(cell) for cell in row[1:7]] for row in rows}
    assert documented == {name: [m[k] for k in keys] for name, m in choices("measure").items()}


def test_backends_targets_and_experiments_are_the_documented_ones() -> None:
    assert {bare(row[0]) for row in table(SWEEPS, "backend", "`auto`")} == set(choices("backend"))
    listed = re.search(r"^Targets: (.*)\.$", section(SWEEPS, "backend"), re.MULTILINE)
    assert listed
    assert in_backticks(listed[1]) == sorted(TARGETS)
    experiments = {bare(row[0]) for row in table(SWEEPS, "Experiments", "`variants`")}
    assert experiments == {p.stem for p in (CONF / "experiment").glob("*.yaml")}
    (shown,) = (b.text for b in blocks(SWEEPS) if b.language == "yaml")
    assert shown == (CONF / "experiment" / "tile_sweep.yaml").read_text(encoding="utf-8")


def test_the_precision_classes_are_the_documented_ones() -> None:
    rows = table(SWEEPS, "Precision classes", "`tf32`")
    expected = [
        [d.name, list(d.aliases), d.ctype, d.bytes, d.accumulator, d.operand_bits or ""]
        for d in DTYPES.values()
    ]
    documented = [
        [bare(n), in_backticks(also), bare(ctype), int(size), bare(sums), int(bits) if bits else ""]
        for n, also, ctype, size, sums, bits in rows
    ]
    assert documented == expected
