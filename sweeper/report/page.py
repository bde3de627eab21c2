"""The report as one HTML file: no request leaves it, and what it shows is text, never markup."""

from __future__ import annotations

from importlib.resources import files

from sweeper.report.columns import packed
from sweeper.report.contents import Contents
from sweeper.report.endings_html import confirmations, failures, provenance
from sweeper.report.markup import figure, tag, text
from sweeper.report.matrix_html import matrix
from sweeper.report.payload import payload
from sweeper.report.summary_html import best_table, headline, summary

__all__ = ["FIGURES", "page"]

# What a browser may load for this page: what stands in it.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:;"
    " base-uri 'none'; form-action 'none'"
)

FIGURES: tuple[tuple[str, str, str, str], ...] = (
    (
        "kernels",
        "Best of each kernel",
        "How far each kernel comes, against the library and the roofline.",
        "compare",
    ),
    (
        "roofline",
        "Roofline",
        (
            "Rate against arithmetic intensity by compulsory traffic, each input read and each output written once:"
            " every valid configuration, the libraries, and the device's ceilings. Both axes are logarithmic."
        ),
        "compare",
    ),
    (
        "progress",
        "Best so far",
        "Every evaluation in the order it was asked, and the best found until then.",
        "search",
    ),
    (
        "levels",
        "Time against each parameter",
        (
            "Every valid configuration by level: dots with median and quartiles, and the best of each level joined by"
            " a line. Where that line is flat, the parameter does not matter if the others are chosen well."
        ),
        "search",
    ),
    (
        "parallel",
        "Parallel coordinates",
        (
            "A line is a configuration; bluer ones are faster, the best one stands out. Levels switched off"
            " below leave out the configurations that have them."
        ),
        "search",
    ),
    (
        "pair",
        "Two parameters together",
        "Every pair of levels, over all that the other parameters were.",
        "search",
    ),
    (
        "importance",
        "What matters",
        "The share of the variance of log time that a parameter explains alone, and with all its interactions.",
        "why",
    ),
    ("interactions", "Interactions", "What two parameters explain together beyond what each adds.", "why"),
    (
        "neighbours",
        "Around the winner",
        "The winner with one parameter changed: how much more time that takes.",
        "why",
    ),
    (
        "samples",
        "Samples of the finalists",
        "The times behind the best few and the library: each dot one sample, the box median and quartiles.",
        "sure",
    ),
    (
        "clocks",
        "Clocks, power and temperature",
        "As read while each configuration was timed, over the run. A clock that falls makes later ones look slow.",
        "sure",
    ),
)
"""Name, title, caption and section of each figure, in the order of the page."""

_SECTIONS = (
    ("compare", "Against library and roofline"),
    ("search", "The search"),
    ("why", "Why the winner wins"),
    ("sure", "How sure the times are"),
)


def page(contents: Contents) -> str:
    """The whole file."""
    parts: list[tuple[str, str, str]] = [
        ("summary", "Summary", summary(contents) + best_table(contents)),
        ("matrix", "Shape by variant", matrix(contents)),
    ]
    number = 1
    for name, title in _SECTIONS:
        body = ""
        for key, head, caption, where in FIGURES:
            if where == name:
                body += figure(key, head, caption, number)
                number += 1
        parts.append((name, title, body))
    parts.append(("table", "All configurations", '<div id="rows"></div>'))
    after = [
        ("confirmations", "Confirmations", confirmations(contents)),
        ("failures", "Failures", failures(contents)),
        ("provenance", "Provenance", provenance(contents)),
    ]
    before, chosen, after = ([part for part in some if part[2]] for some in (parts[:2], parts[2:], after))
    toc = "".join(
        tag("li", tag("a", text(title), href=f"#{key}")) for key, title, _ in [*before, *chosen, *after]
    )
    bodies = _sections(before) + tag("div", _choice(contents) + _sections(chosen)) + _sections(after)
    return _DOCUMENT.format(
        policy=_POLICY,
        title=text(contents.title),
        style=_asset("report.css"),
        facts=headline(contents),
        toc=toc,
        body=bodies,
        data=payload(contents),
        plotly=_plotly(),
        script=_asset("report.js"),
    )


def _sections(parts: list[tuple[str, str, str]]) -> str:
    return "".join(
        tag("section", tag("h2", text(title), id=f"h-{key}") + body, id=key, aria_labelledby=f"h-{key}")
        for key, title, body in parts
    )


def _choice(contents: Contents) -> str:
    """What chooses the problem and the kernel that the figures show; the script fills it."""
    studies = sum(len(one.problem.studies) for one in contents.found)
    if studies < 2:
        return ""
    problems = ""
    if len(contents.found) > 1:
        problems = '<label>Problem <select id="problem"></select></label>'
    return (
        f'<div class="bar-choice" role="group" aria-label="What the figures show">{problems}'
        '<label>Kernel <select id="study"></select></label>'
        '<span><button class="step" id="before" aria-label="Kernel before">←</button> '
        '<button class="step" id="after" aria-label="Kernel after">→</button></span></div>'
    )


def _asset(name: str) -> str:
    return (files("sweeper.report") / "assets" / name).read_text(encoding="utf-8")


def _plotly() -> str:
    """Plotly's library, gzipped: a third of its size in the page, inflated by the browser."""
    return packed((files("plotly") / "package_data" / "plotly.min.js").read_bytes())


_DOCUMENT = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} – sweeper report</title>
<link rel="icon" href="data:,">
<style>{style}</style>
<script>(function () {{
  var named = /theme=(light|dark)/.exec(location.hash + location.search);
  var kept = null;
  try {{ kept = localStorage.getItem("sweeper-theme"); }} catch (e) {{}}
  var dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = named ? named[1] : kept || (dark ? "dark" : "light");
}})();</script>
</head>
<body>
<a class="skip" href="#summary">Skip to the summary</a>
<div class="page">
<header class="masthead">
<div><p class="kicker">sweeper report</p><h1>{title}</h1><p class="facts">{facts}</p></div>
<button id="theme" type="button" class="no-print" aria-label="Switch between light and dark">Dark</button>
</header>
<nav class="toc" aria-label="Contents"><ul>{toc}</ul></nav>
<main>
<noscript><p class="none">The figures need JavaScript; report.md and the figures folder beside this file have the same
without it.</p></noscript>
{body}
</main>
<footer class="foot"><p>Times are medians of a launch unless they say predicted. Written by sweeper; readable offline,
nothing is loaded from anywhere.</p></footer>
</div>
<script type="application/octet-stream" id="data">{data}</script>
<script type="application/octet-stream" id="plotly">{plotly}</script>
<script>{script}</script>
</body>
</html>
"""
