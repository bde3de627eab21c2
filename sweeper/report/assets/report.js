"use strict";
// Draws the figures of the page from the arrays that it holds. Text goes in as text; nothing is requested.
(async function () {
  const $ = (id) => document.getElementById(id);
  const root = document.documentElement;
  const report = (window.sweeperReport = { ready: false, figures: {}, errors: [] });

  // Base 85 as in RFC 1924, with a comma for "<": four bytes in five characters, none of which markup knows.
  const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";
  function decode(text) {
    const place = new Uint8Array(128);
    for (let i = 0; i < 85; i++) place[DIGITS.charCodeAt(i)] = i;
    const pad = (5 - (text.length % 5)) % 5, padded = text + "~".repeat(pad);
    const view = new DataView(new ArrayBuffer((padded.length / 5) * 4));
    for (let i = 0, at = 0; i < padded.length; i += 5, at += 4) {
      let value = 0;
      for (let k = 0; k < 5; k++) value = value * 85 + place[padded.charCodeAt(i + k)];
      view.setUint32(at, value);
    }
    return new Uint8Array(view.buffer, 0, view.byteLength - pad);
  }
  async function inflate(id) {
    const bytes = decode($(id).textContent);
    $(id).remove();
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
  }
  function refuse(text) {
    for (const figure of document.querySelectorAll("figure[data-figure]")) say(figure, text);
  }
  function say(figure, text) {
    const none = figure.querySelector(":scope > .none");
    none.textContent = text;
    none.hidden = !text;
    figure.querySelector(".body").hidden = !!text;
    figure.querySelector(".controls").hidden = !!text;
  }
  if (typeof DecompressionStream === "undefined") {
    return refuse("This browser is too old for the figures; report.md and the figures folder have the same.");
  }

  const whole = await (await inflate("data")).arrayBuffer();
  const length = new DataView(whole).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(whole, 4, length)));
  const KIND = { f4: Float32Array, i4: Int32Array, u2: Uint16Array, u1: Uint8Array };
  const NONE = { u2: 0xffff, u1: 0xff };
  const column = (c) => new KIND[c.t](whole, 4 + length + c.at, c.n);
  const codes = (c) => Array.from(column(c), (v) => (v === NONE[c.t] ? -1 : v));

  const plotly = document.createElement("script");
  plotly.textContent = await (await inflate("plotly")).text();
  document.head.append(plotly);
  plotly.remove();
  const Plotly = window.Plotly;

  // Numbers as they are read.
  const format = (v, digits = 4) => {
    if (v === null || v === undefined || !isFinite(v)) return "–";
    if (v === 0) return "0";
    const places = Math.max(digits - 1 - Math.floor(Math.log10(Math.abs(v))), 0);
    return v.toLocaleString("en-US", { minimumFractionDigits: Math.min(places, 12), maximumFractionDigits: Math.min(places, 12) });
  };
  const short = (v) => v.toLocaleString("en-US", { maximumSignificantDigits: 3 });
  const escape = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const clip = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
  const median = (values) => {
    const sorted = Float64Array.from(values).sort();
    const half = sorted.length >> 1;
    return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  };
  const range = (n) => Array.from({ length: n }, (_, i) => i);
  function unitOf(study) {
    const best = study.best === null ? 1 : study.value[study.best];
    const scale = study.energy
      ? [[1, "J"], [1e-3, "mJ"], [1e-6, "µJ"]]
      : [[1e3, "s"], [1, "ms"], [1e-3, "µs"], [1e-6, "ns"]];
    const [factor, unit] = scale.find(([f]) => best >= f) || scale[scale.length - 1];
    return { factor, unit };
  }
  const element = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "on") for (const [event, run] of Object.entries(value)) made.addEventListener(event, run);
      else if (value !== null && value !== undefined) made.setAttribute(key, value);
    }
    made.append(...children);
    return made;
  };

  // Studies, with their arrays unpacked when they are first shown.
  const opened = new Map();
  function open(place) {
    if (!opened.has(place)) {
      const s = head.studies[place];
      const study = { ...s, place };
      for (const name of ["value", "time", "low", "high", "gflops", "trial"]) study[name] = column(s[name]);
      study.status = codes(s.status);
      study.reason = codes(s.reason);
      study.params = s.params.map((p) => ({ ...p, codes: codes(p.codes) }));
      study.valids = range(s.tried).filter((i) => isFinite(study.value[i]));
      study.order = [...study.valids].sort((a, b) => study.value[a] - study.value[b] || a - b);
      const unit = unitOf(study);
      study.unit = unit.unit;
      study.factor = unit.factor;
      study.shown = (i) => study.value[i] / unit.factor;
      opened.set(place, study);
    }
    return opened.get(place);
  }
  const problemOf = (study) => head.problems[study.problem];
  const textOf = (study, i) =>
    study.params.map((p) => `${p.name}=${p.codes[i] < 0 ? "–" : p.levels[p.codes[i]]}`).join(" ") || study.kernel;
  const valueTitle = (study) => {
    const how = problemOf(study).source;
    const what = study.energy ? "energy a launch" : "time a launch";
    return `${how === "predicted" ? "predicted " : how === "replayed" ? "replayed " : ""}${what} (${study.unit})`;
  };
  // Studies of a problem have one name each: the kernel's, and the study's where a kernel has several.
  function labels(places) {
    const kernels = places.map((p) => head.studies[p].kernel);
    return places.map((p, i) =>
      kernels.filter((k) => k === kernels[i]).length > 1 ? `${kernels[i]} · ${head.studies[p].name.split("-").pop()}` : kernels[i]);
  }

  const chosen = { problem: 0, study: 0, x: null, y: null, how: "best", off: new Map() };

  // Colours of the theme that is on.
  const ink = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
  let theme = {};
  function readTheme() {
    theme = Object.fromEntries(
      ["ground", "ink", "soft", "line", "grid", "accent", "accent-soft", "bad", "dim", "raised", "heat0", "heat1", "heat2"].map((n) => [n, ink(n)]));
    theme.cat = range(8).map((i) => ink("cat" + i));
    theme.heat = [[0, theme.heat2], [0.5, theme.heat1], [1, theme.heat0]];
  }
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star"];
  const colour = (i) => theme.cat[i % 8];
  const symbol = (i) => SYMBOLS[(i + Math.floor(i / 8)) % 8];
  function faded(hex, alpha) {
    const n = parseInt(hex.slice(1), 16);
    return `rgba(${n >> 16},${(n >> 8) & 255},${n & 255},${alpha})`;
  }

  function axis(title, extra = {}) {
    return {
      title: { text: escape(title), font: { size: 12.5, color: theme.soft }, standoff: 10 },
      gridcolor: theme.grid, linecolor: theme.line, tickcolor: theme.line, zeroline: false, showline: true,
      ticks: "outside", ticklen: 4, ticklabelstandoff: 2, tickfont: { size: 11.5, color: theme.soft }, automargin: true, exponentformat: "none",
      separatethousands: true, ...extra,
    };
  }
  // Labels at 1, 2 and 5 of each decade: a reader need not guess what "2" between two decades means.
  function logAxis(title, low, high, extra = {}) {
    const [a, b] = [Math.log10(low), Math.log10(high)];
    const steps = b - a > 5 ? [1] : b - a > 2.2 ? [1, 3] : b - a > 0.9 ? [1, 2, 5] : b - a > 0.35 ? [1, 1.5, 2, 3, 4, 5, 7] : null;
    let values = [];
    if (steps) {
      for (let e = Math.floor(a) - 1; e <= Math.ceil(b); e++) for (const s of steps) values.push(s * 10 ** e);
      values = values.filter((v) => v >= low * 0.999 && v <= high * 1.001);
    }
    if (values.length < 2) {
      const gap = niceStep((high - low) / 4);
      values = range(12).map((i) => Math.ceil(low / gap) * gap + i * gap).filter((v) => v <= high);
    }
    return axis(title, {
      type: "log", range: [a, b], tickvals: values, ticktext: values.map((v) => (v >= 1e6 ? `${short(v / 1e6)} M` : short(v))), ...extra,
    });
  }
  function niceStep(raw) {
    const unit = 10 ** Math.floor(Math.log10(raw));
    return [1, 2, 2.5, 5, 10].find((s) => s * unit >= raw) * unit;
  }
  function spread(title, low, high, extra = {}) {
    if (!(high > low)) [low, high] = [low * 0.9, high * 1.1 || 1];
    if (high / low > 4) return logAxis(title, low / (high / low) ** 0.05, high * (high / low) ** 0.05, extra);
    const room = (high - low) * 0.06;
    return axis(title, { range: [low - room, high + room], ...extra });
  }
  function layout(extra = {}) {
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", height: 380, autosize: true,
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: theme.ink },
      margin: { l: 56, r: 18, t: 14, b: 48 }, hovermode: "closest", showlegend: false,
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12 }, bgcolor: "rgba(0,0,0,0)" },
      hoverlabel: { bgcolor: theme.raised, bordercolor: theme.line, font: { color: theme.ink, size: 12.5 }, align: "left" },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: theme.soft, activecolor: theme.accent }, ...extra,
    };
  }
  const rule = (where, value, extra = {}) => ({
    type: "line", layer: "above", line: { color: theme.ink, width: 1.3, dash: "dash" },
    ...(where === "y" ? { xref: "paper", x0: 0, x1: 1, yref: "y", y0: value, y1: value } : { yref: "paper", y0: 0, y1: 1, xref: "x", x0: value, x1: value }),
    ...extra,
  });
  const note = (text, extra = {}) => ({ text: escape(text), showarrow: false, font: { size: 11.5, color: theme.ink }, bgcolor: faded(theme.ground, 0.8), ...extra });

  // Points that fall on the same spot as another are not drawn twice: `most` stay, the best of each spot.
  function thin(places, x, y, most = 3000) {
    if (places.length <= most) return places;
    const side = Math.floor(Math.sqrt(most * 2));
    const ends = (f) => places.reduce(([a, b], i) => [Math.min(a, f(i)), Math.max(b, f(i))], [Infinity, -Infinity]);
    const [[x0, x1], [y0, y1]] = [ends(x), ends(y)];
    const cell = (v, a, b) => Math.floor((side * (v - a)) / (b - a || 1));
    const kept = new Map();
    for (const i of places) {
      const key = cell(x(i), x0, x1) * 100003 + cell(y(i), y0, y1);
      if (!kept.has(key)) kept.set(key, i);
    }
    const all = [...kept.values()];
    return all.length > 2 * most ? all.filter((_, k) => k % Math.ceil(all.length / most) === 0) : all;
  }
  const jitter = (i) => (((i * 2654435761) >>> 0) % 1000) / 1000 - 0.5;

  // Figures: each gives what Plotly draws, or why there is nothing to draw.
  const figures = {};

  const sentences = (texts) => texts.filter(Boolean).map((t) => t[0].toUpperCase() + t.slice(1) + (/[.:]$/.test(t) ? "" : ".")).join(" ");

  figures.kernels = () => {
    const problem = head.problems[chosen.problem];
    const names = labels(problem.studies);
    let rows = problem.studies.map((p, i) => ({ study: open(p), name: names[i] })).filter((r) => r.study.best !== null)
      .map(({ study, name }) => ({ name, text: study.bestText, i: study.best, study, mark: study.place === chosen.study }));
    const alone = rows.length === 1;
    if (alone) {
      const study = rows[0].study;
      rows = [study.best, ...study.order.filter((i) => i !== study.best)].slice(0, 12)
        .map((i) => ({ name: textOf(study, i), text: textOf(study, i), i, study, mark: i === study.best }));
    }
    if (!rows.length) return { none: "No configuration of this problem is valid." };
    const inRate = rows.every((r) => isFinite(r.study.gflops[r.i])) && problem.flops;
    const unit = rows[0].study;
    const factor = unit.energy ? 1 : Math.min(...rows.map((r) => unitOf(r.study).factor));
    const unitText = factor === 1e-3 ? "µs" : factor === 1e-6 ? "ns" : factor === 1e3 ? "s" : "ms";
    const bars = rows.map((r) => (inRate ? r.study.gflops[r.i] : r.study.time[r.i] / factor));
    const told = rows.map((r) => {
      const t = r.study.time[r.i], u = t >= 1 ? [1, "ms"] : [1e-3, "µs"];
      return inRate ? `${Math.round(r.study.gflops[r.i]).toLocaleString("en-US")} · ${format(t / u[0])} ${u[1]}` : `${format(t / u[0])} ${u[1]}`;
    });
    const most = Math.max(...bars), lines = [];
    for (const library of problem.libraries.slice(0, 2)) {
      const at = inRate ? library.gflops : library.time / factor;
      if (at) lines.push({ at, text: library.name, dash: "dash" });
    }
    if (inRate && problem.roof && problem.roof < 12 * most) lines.push({ at: problem.roof, text: "roofline", dash: "dot" });
    if (!inRate && problem.roofMs && problem.roofMs / factor > most / 200) lines.push({ at: problem.roofMs / factor, text: "roofline", dash: "dot" });
    const top = Math.max(most, ...lines.map((l) => l.at));
    lines.sort((a, b) => a.at - b.at);
    lines.forEach((l, i) => { l.up = i && l.at - lines[i - 1].at < 0.09 * top ? 1 - (lines[i - 1].up || 0) : 0; });
    const title = (inRate ? "rate (GFLOP/s)" : `time a launch (${unitText})`);
    // A bar's figure stands where no rule crosses it: inside where the bar is long enough.
    const inside = bars.map((b) => b > 0.28 * top);
    return {
      data: [{
        type: "bar", orientation: "h", y: range(rows.length), x: bars, width: 0.62,
        marker: { color: rows.map((r) => (r.mark ? theme.accent : faded(theme.accent, root.dataset.theme === "dark" ? 0.42 : 0.36))) },
        text: told.map(escape), textposition: inside.map((v) => (v ? "inside" : "outside")), insidetextanchor: "start",
        insidetextfont: { size: 11.5, color: rows.map((r) => (r.mark ? theme.ground : theme.ink)) }, textfont: { size: 11.5, color: theme.ink }, cliponaxis: false, constraintext: "none",
        customdata: rows.map((r) => escape(r.text)), hovertemplate: "%{customdata}<br>%{text}<extra></extra>",
      }],
      layout: layout({
        height: 84 + 27 * rows.length + (lines.length ? 22 : 0), bargap: 0.3, margin: { l: 40, r: 20, t: lines.length ? 40 : 8, b: 46 },
        xaxis: axis(problem.source === "predicted" ? "predicted " + title : title, { range: [0, top * 1.06], rangemode: "tozero" }),
        yaxis: axis("", { autorange: "reversed", tickvals: range(rows.length), ticktext: rows.map((r) => escape(clip(r.name, 46))), ticks: "", ticklabelstandoff: 6, showgrid: false, showline: false, tickfont: { size: 12, color: theme.ink } }),
        shapes: lines.map((l) => rule("x", l.at, { line: { color: theme.ink, width: 1.2, dash: l.dash } })),
        annotations: lines.map((l) => note(l.text, { x: l.at, y: 1, yref: "paper", yanchor: "bottom", xanchor: l.at > 0.93 * top ? "right" : "center", yshift: 2 + 14 * l.up })),
      }),
      points: rows.length,
      title: alone ? "Best configurations" : null,
      caption: (alone ? "The best configurations of this kernel; " : "Each kernel's best configuration; ") +
        (inRate ? "longer is faster." : "shorter is faster."),
      alt: `${title} of ${rows.length} ${alone ? "configurations" : "kernels"}: ` + rows.map((r, i) => `${r.name} ${told[i]}`).join("; ") +
        lines.map((l) => `; ${l.text} at ${format(l.at)}`).join(""),
    };
  };

  figures.roofline = () => {
    const mine = head.problems[chosen.problem];
    if (!mine.flops || !mine.bytes) return { none: "The rows do not tell the problem's operations and bytes, so it has no place under a roofline." };
    const alike = head.problems.filter((p) => p.flops && p.bytes && p.dtype === mine.dtype && p.device === mine.device && p.source === mine.source && p.result === mine.result);
    const data = [], names = [...new Set(mine.studies.map((p) => head.studies[p].kernel))];
    let low = Infinity, high = 0, points = 0;
    const seen = (v) => { low = Math.min(low, v); high = Math.max(high, v); };
    const intensities = alike.map((p) => p.flops / p.bytes);
    const others = { x: [], y: [], text: [] };
    for (const problem of alike.filter((p) => p !== mine)) {
      const x = problem.flops / problem.bytes;
      for (const place of problem.studies) {
        const study = open(place);
        for (const i of thin(study.valids, () => 0, (j) => Math.log(study.gflops[j]), 120)) {
          others.x.push(x); others.y.push(study.gflops[i]); others.text.push(escape(`${problem.title}: ${study.kernel} ${textOf(study, i)}`));
          seen(study.gflops[i]);
        }
      }
    }
    if (others.x.length) data.push({ type: "scatter", mode: "markers", name: "other problems", x: others.x, y: others.y, text: others.text, marker: { size: 4, color: theme.dim, opacity: 0.5 }, hovertemplate: "%{text}<br>%{y:,.0f} GFLOP/s<extra></extra>" });
    const x = mine.flops / mine.bytes;
    // One problem has one intensity: kernels stand side by side, a little apart, or nobody could tell them apart.
    const width = names.length > 1 ? Math.min(0.045 * (names.length - 1), 0.34) : 0;
    const beside = (k) => x * 10 ** (width * (k / Math.max(names.length - 1, 1) - 0.5));
    for (const name of names) {
      const k = names.indexOf(name), at = { x: [], y: [], text: [] };
      for (const place of mine.studies.filter((p) => head.studies[p].kernel === name)) {
        const study = open(place);
        for (const i of thin(study.valids, () => 0, (j) => Math.log(study.gflops[j]), 600)) {
          at.x.push(beside(k)); at.y.push(study.gflops[i]); at.text.push(escape(`${name} ${textOf(study, i)}`)); seen(study.gflops[i]);
        }
      }
      points += at.x.length;
      if (at.x.length) data.push({ type: "scatter", mode: "markers", name: escape(name), ...at, marker: { size: 7.5, symbol: symbol(k), color: faded(colour(k), 0.75), line: { width: 0.5, color: theme.ground } }, hovertemplate: "%{text}<br>%{y:,.0f} GFLOP/s<extra></extra>" });
    }
    for (const library of mine.libraries) if (library.gflops) {
      data.push({ type: "scatter", mode: "markers", name: escape(library.name), x: [x], y: [library.gflops], marker: { size: width ? 15 + 150 * width : 15, symbol: "line-ew-open", line: { width: 2, color: theme.ink }, color: theme.ink }, hovertemplate: `${escape(library.name)}<br>%{y:,.0f} GFLOP/s<extra></extra>` });
      seen(library.gflops);
    }
    if (!points) return { none: "No valid configuration has a rate." };
    const annotations = [];
    let [left, right] = [Math.min(...intensities), Math.max(...intensities)];
    if (mine.peak && mine.bandwidth) {
      const ridge = mine.peak / mine.bandwidth;
      left = Math.min(left, ridge) / 4; right = Math.max(right, ridge) * 4;
      data.unshift({ type: "scatter", mode: "lines", name: "ceilings", x: [left, ridge, right], y: [left * mine.bandwidth, mine.peak, mine.peak], line: { color: theme.ink, width: 1.6 }, hoverinfo: "skip", showlegend: false });
      high = Math.max(high, mine.peak);
      low = Math.min(low, left * mine.bandwidth);
      annotations.push(note(`compute: ${Math.round(mine.peak).toLocaleString("en-US")} GFLOP/s in ${mine.dtype}`, { x: Math.log10(right), y: Math.log10(mine.peak), xanchor: "right", yanchor: "bottom" }));
      annotations.push(note(`memory: ${Math.round(mine.bandwidth).toLocaleString("en-US")} GB/s`, { x: Math.log10(Math.sqrt(left * ridge)), y: Math.log10(Math.sqrt(left * ridge) * mine.bandwidth), xanchor: "left", yanchor: "top", xshift: 6 }));
    } else { left /= 4; right *= 4; if (mine.roof) { data.unshift({ type: "scatter", mode: "lines", x: [left, right], y: [mine.roof, mine.roof], name: "roof", line: { color: theme.ink, width: 1.6 }, showlegend: false }); high = Math.max(high, mine.roof); } }
    return {
      data,
      layout: layout({
        height: 430, showlegend: true, annotations, margin: { l: 64, r: 18, t: 30, b: 48 },
        legend: { orientation: "v", x: 1.01, y: 1, xanchor: "left", font: { size: 11.5 } },
        xaxis: logAxis("arithmetic intensity (FLOP/B)", left, right),
        yaxis: logAxis(mine.source === "predicted" ? "predicted rate (GFLOP/s)" : "rate (GFLOP/s)", low / 1.4, high * 1.6),
      }),
      points,
      extra: `${mine.title} has ${format(x, 3)} FLOP/B, so all its points belong above each other${width ? "; kernels stand a little apart to be told from one another" : ""}.` + (mine.peak ? ` Ceilings: ${mine.limits}.` : " The device is in no table of ours: no memory ceiling."),
      alt: `Roofline of ${mine.device} in ${mine.dtype}: ${points} configurations at ${format(x, 3)} FLOP/B` + (mine.peak ? `, below ${Math.round(mine.peak)} GFLOP/s of compute and ${Math.round(mine.bandwidth)} GB/s of memory` : ""),
    };
  };

  figures.progress = (study) => {
    if (!study.valids.length) return { none: "No configuration is valid; the reasons are under Failures." };
    let best = Infinity;
    const steps = { x: [], y: [] };
    for (const i of study.valids) if (study.value[i] < best) { best = study.value[i]; steps.x.push(i + 1); steps.y.push(study.shown(i)); }
    steps.x.push(study.tried); steps.y.push(best / study.factor);
    const failed = range(study.tried).filter((i) => !isFinite(study.value[i]));
    const values = study.valids.map(study.shown);
    const [low, high] = [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
    const library = study.energy ? null : problemOf(study).libraries[0];
    const libraryAt = library ? library.time / study.factor : null;
    const span = libraryAt ? [Math.min(low, libraryAt), Math.max(high, libraryAt)] : [low, high];
    const dots = thin(study.valids, (i) => i, (i) => Math.log(study.value[i]), 4000);
    const y = spread(valueTitle(study), ...span);
    const topAt = y.type === "log" ? 10 ** (y.range[1] - (y.range[1] - y.range[0]) * 0.025) : y.range[1] - (y.range[1] - y.range[0]) * 0.025;
    const data = [
      { type: "scatter", mode: "markers", name: "evaluation", x: dots.map((i) => i + 1), y: dots.map(study.shown), text: dots.map((i) => escape(textOf(study, i))), marker: { size: study.tried > 800 ? 4 : 6, color: theme.dim, opacity: study.tried > 800 ? 0.5 : 0.75 }, hovertemplate: `%{text}<br>%{y:.4~g} ${study.unit}, evaluation %{x}<extra></extra>` },
      { type: "scatter", mode: "lines", name: "best so far", ...steps, line: { color: theme.accent, width: 2.2, shape: "hv" }, hovertemplate: `best %{y:.4~g} ${study.unit} after %{x}<extra></extra>` },
    ];
    if (failed.length) {
      const some = thin(failed, (i) => i, () => 0, 500);
      data.push({ type: "scatter", mode: "markers", name: `failed (${failed.length.toLocaleString("en-US")})`, x: some.map((i) => i + 1), y: some.map(() => topAt), text: some.map((i) => escape(`${study.statuses[study.status[i]]}: ${clip(study.reasons[study.reason[i]] || "no reason", 90)}`)), marker: { symbol: "x-thin", size: 6, line: { width: 1.3, color: theme.bad } }, hovertemplate: "%{text}<extra></extra>" });
    }
    const annotations = [], shapes = [];
    if (libraryAt) {
      shapes.push(rule("y", libraryAt, { line: { color: theme.ink, width: 1.2, dash: "dash" } }));
      annotations.push(note(library.name, { xref: "paper", x: 1, xanchor: "right", y: y.type === "log" ? Math.log10(libraryAt) : libraryAt, yanchor: "bottom" }));
    }
    return {
      data,
      layout: layout({ showlegend: true, height: 360, margin: { l: 60, r: 18, t: 34, b: 48 }, shapes, annotations, xaxis: axis("evaluations, in the order asked", { range: [1 - study.tried * 0.015 - 0.2, study.tried * 1.015 + 0.2], ...(study.tried < 12 ? { dtick: 1 } : {}) }), yaxis: y }),
      points: study.valids.length,
      extra: dots.length < study.valids.length ? `${dots.length.toLocaleString("en-US")} of ${study.valids.length.toLocaleString("en-US")} dots are drawn; the others fall on these.` : "",
      alt: `Best so far of ${study.kernel}: from ${format(steps.y[0])} to ${format(best / study.factor)} ${study.unit} over ${study.tried} evaluations, ${failed.length} failed`,
    };
  };

  figures.levels = (study) => {
    if (!study.params.length) return { none: "No parameter was varied in this study." };
    if (!study.valids.length) return { none: "No configuration is valid." };
    const values = study.valids.map(study.shown);
    const [low, high] = [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
    const parts = study.params.map((p) => {
      const has = study.valids.filter((i) => p.codes[i] >= 0);
      const dots = thin(has, (i) => p.codes[i] + 0.5 * jitter(i), (i) => Math.log(study.value[i]), 900);
      const least = p.levels.map((_, level) => has.reduce((best, i) => (p.codes[i] === level && (best < 0 || study.value[i] < study.value[best]) ? i : best), -1));
      const box = has.length >= p.levels.length * 6;
      const data = [
        { type: "scatter", mode: "markers", x: dots.map((i) => p.codes[i] + 0.46 * jitter(i)), y: dots.map(study.shown), text: dots.map((i) => escape(textOf(study, i))), marker: { size: has.length > 400 ? 3 : 5, color: theme.dim, opacity: has.length > 400 ? 0.4 : 0.65 }, hovertemplate: `%{text}<br>%{y:.4~g} ${study.unit}<extra></extra>` },
      ];
      if (box) {
        data.push({ type: "box", x: has.map((i) => p.codes[i]), y: has.map(study.shown), boxpoints: false, width: 0.55, line: { color: theme.soft, width: 1.1 }, fillcolor: "rgba(0,0,0,0)", hoverinfo: "skip" });
      }
      const joined = least.map((i, level) => [i, level]).filter(([i]) => i >= 0);
      data.push({ type: "scatter", mode: "lines+markers", x: joined.map(([, l]) => l), y: joined.map(([i]) => study.shown(i)), text: joined.map(([i]) => escape(textOf(study, i))), line: { color: theme.accent, width: 1.8 }, marker: { size: joined.map(([i]) => (i === study.best ? 10 : 6)), color: theme.accent, line: { color: theme.ground, width: 1 } }, hovertemplate: `best of this level: %{text}<br>%{y:.4~g} ${study.unit}<extra></extra>` });
      const every = Math.ceil(p.levels.length / 12);
      const shown = range(p.levels.length).filter((l) => l % every === 0);
      return {
        data,
        layout: layout({ height: 250, margin: { l: 48, r: 8, t: 8, b: 42 }, xaxis: axis(p.name, { tickvals: shown, ticktext: shown.map((l) => escape(clip(p.levels[l], 14))), range: [-0.6, p.levels.length - 0.4], showgrid: false, title: { text: escape(p.name), font: { size: 13, color: theme.ink }, standoff: 6 } }), yaxis: spread(study.unit, low, high) }),
        points: has.length,
        alt: `${valueTitle(study)} by ${p.name}: best of ` + joined.map(([i, l]) => `${p.levels[l]} ${format(study.shown(i))}`).join(", "),
      };
    });
    const fixed = study.fixed.length ? ` Not varied: ${study.fixed.map((f) => `${f.name}=${f.value}`).join(" ")}.` : "";
    return { parts, points: study.valids.length, extra: `Vertical: ${valueTitle(study)}.${fixed}` };
  };

  figures.parallel = (study, controls) => {
    if (study.params.length < 2) return { none: "Fewer than two parameters were varied: there is nothing to lay side by side." };
    if (study.valids.length < 2) return { none: "Fewer than two configurations are valid." };
    if (!chosen.off.has(study.place)) chosen.off.set(study.place, new Set());
    const off = chosen.off.get(study.place);
    controls.replaceChildren(...study.params.filter((p) => p.levels.length <= 16).map((p, k) => {
      const at = study.params.indexOf(p);
      return element("fieldset", {}, element("legend", {}, p.name), ...p.levels.map((level, l) => {
        const key = `${at}:${l}`;
        return element("button", { type: "button", class: "chip", "aria-pressed": String(!off.has(key)), "data-key": key, title: `${p.name}=${level}`, on: { click: () => {
          off.has(key) ? off.delete(key) : off.add(key);
          show("parallel");
          document.querySelector(`#fig-parallel .chip[data-key="${key}"]`)?.focus();
        } } }, level);
      }));
    }));
    const kept = study.order.filter((i) => study.params.every((p, k) => !off.has(`${k}:${p.codes[i]}`)));
    if (!kept.length) return { none: "", data: [], layout: layout({ annotations: [note("every configuration is switched off", { xref: "paper", yref: "paper", x: 0.5, y: 0.5 })] }), points: 0, alt: "nothing is left" };
    const lows = Math.log(study.value[study.order[0]]), highs = Math.log(study.value[study.order[study.order.length - 1]]);
    const fast = (i) => (highs - Math.log(study.value[i])) / (highs - lows || 1);
    const at = (p, i) => (p.levels.length < 2 ? 0.5 : Math.min(Math.max(p.codes[i], 0) / (p.levels.length - 1) + Math.min(0.04, 0.3 / p.levels.length) * jitter(i * 7 + p.levels.length), 1.02));
    const n = study.params.length;
    const cut = (share) => Math.max(Math.ceil(study.order.length * share), 1);
    const rank = new Map(study.order.map((i, r) => [i, r]));
    const many = study.valids.length > 300;
    const groups = [
      ["the rest", 1, faded(theme.dim, many ? 0.45 : 0.6), many ? 0.5 : 1.2],
      ["fastest half", 0.5, faded(theme.heat1, many ? 0.5 : 0.9), many ? 0.5 : 1.5],
      ["fastest tenth", 0.1, faded(theme.accent, many ? 0.5 : 0.9), many ? 0.6 : 1.7],
      ...(many ? [["fastest hundredth", 0.01, theme.accent, 1.3]] : []),
    ];
    let drawn = 0;
    const data = groups.map(([name, share, line, width], g) => {
      const below = g + 1 < groups.length ? cut(groups[g + 1][1]) : 0;
      let mine = kept.filter((i) => rank.get(i) < cut(share) && rank.get(i) >= below && i !== study.best);
      if (mine.length > 1500) mine = mine.filter((_, k) => k % Math.ceil(mine.length / 1500) === 0);
      drawn += mine.length;
      if (!mine.length) return null;
      const x = [], y = [];
      for (const i of mine) { study.params.forEach((p, k) => { x.push(k); y.push(at(p, i)); }); x.push(n, null); y.push(fast(i), null); }
      return { type: "scatter", mode: "lines", name, x, y, line: { color: line, width }, hoverinfo: "skip" };
    }).filter(Boolean);
    const best = kept.includes(study.best) ? study.best : kept[0];
    const shownBest = best === study.best ? "the best" : "the best that is left";
    data.push({ type: "scatter", mode: "lines+markers", name: shownBest, x: range(n + 1), y: [...study.params.map((p) => at(p, best)), fast(best)], text: [...study.params.map((p) => escape(`${p.name}=${p.levels[p.codes[best]]}`)), `${format(study.shown(best))} ${study.unit}`], line: { color: theme.bad, width: 2.4 }, marker: { size: 6, color: theme.bad }, hovertemplate: "%{text}<extra></extra>" });
    const annotations = [], shapes = [];
    study.params.forEach((p, k) => {
      const every = Math.ceil(p.levels.length / 10);
      p.levels.forEach((level, l) => {
        if (l % every && l !== p.levels.length - 1) return;
        annotations.push(note(clip(level, 10), { x: k, y: p.levels.length < 2 ? 0.5 : l / (p.levels.length - 1), xanchor: "right", xshift: -6, font: { size: 11, color: theme.soft } }));
      });
    });
    for (let q = 0; q <= 4; q++) annotations.push(note(`${format(Math.exp(highs - (q / 4) * (highs - lows)) / study.factor, 3)}`, { x: n, y: q / 4, xanchor: "left", xshift: 8, font: { size: 11, color: theme.soft } }));
    for (let k = 0; k <= n; k++) shapes.push({ type: "line", layer: "below", x0: k, x1: k, y0: 0, y1: 1, line: { color: theme.soft, width: 1 } });
    return {
      data,
      layout: layout({ height: 430, showlegend: true, annotations, shapes, margin: { l: 44, r: 60, t: 34, b: 44 }, xaxis: axis("", { range: [-0.25, n + 0.2], tickvals: range(n + 1), ticktext: [...study.params.map((p) => escape(p.name)), `${study.energy ? "energy" : "time"} (${study.unit})`], showgrid: false, showline: false, ticks: "", tickfont: { size: 12.5, color: theme.ink } }), yaxis: { visible: false, range: [-0.05, 1.05] } }),
      points: kept.length,
      extra: `${kept.length.toLocaleString("en-US")} of ${study.valids.length.toLocaleString("en-US")} valid configurations${drawn + 1 < kept.length ? `, ${(drawn + 1).toLocaleString("en-US")} of them drawn` : ""}. The time axis is logarithmic, the fastest on top.`,
      alt: `Parallel coordinates of ${study.params.map((p) => p.name).join(", ")} and ${study.energy ? "energy" : "time"}; the best is ${textOf(study, best)} with ${format(study.shown(best))} ${study.unit}`,
    };
  };

  figures.pair = (study, controls) => {
    if (study.params.length < 2) return { none: "Fewer than two parameters were varied." };
    if (!study.valids.length) return { none: "No configuration is valid." };
    const names = study.params.map((p) => p.name);
    // Tile by tile is what most look for first; else the two of most levels.
    const byLevels = range(names.length).sort((a, b) => study.params[b].levels.length - study.params[a].levels.length || a - b);
    const wanted = [["bm", "bn"], ["tile_m", "tile_n"], ["BM", "BN"], ["block_x", "block_y"]].find((w) => w.every((v) => names.includes(v)));
    if (!names.includes(chosen.x) || !names.includes(chosen.y) || chosen.x === chosen.y) [chosen.x, chosen.y] = wanted || [names[byLevels[0]], names[byLevels[1]]];
    const select = (label, key, other) => element("label", {}, label, element("select", { on: { change: (e) => {
      if (e.target.value === chosen[other]) chosen[other] = chosen[key];
      chosen[key] = e.target.value; show("pair"); document.querySelector(`#fig-pair select[data-key=${key}]`).focus();
    } }, "data-key": key }, ...names.map((v) => element("option", { value: v, ...(v === chosen[key] ? { selected: "" } : {}) }, v))));
    controls.replaceChildren(select("across", "x", "y"), select("up", "y", "x"), element("fieldset", {}, element("legend", {}, "cell:"), ...["best", "median"].map((how) =>
      element("button", { type: "button", class: "step", "aria-pressed": String(chosen.how === how), on: { click: () => { chosen.how = how; show("pair"); } } }, how))));
    const [p, q] = [chosen.x, chosen.y].map((v) => study.params[names.indexOf(v)]);
    const cells = new Map();
    for (const i of study.valids) {
      if (p.codes[i] < 0 || q.codes[i] < 0) continue;
      const key = q.codes[i] * p.levels.length + p.codes[i];
      cells.has(key) ? cells.get(key).push(i) : cells.set(key, [i]);
    }
    const value = (key) => (cells.has(key) ? (chosen.how === "best" ? Math.min(...cells.get(key).map(study.shown)) : median(cells.get(key).map(study.shown))) : null);
    const grid = q.levels.map((_, r) => p.levels.map((_, c) => value(r * p.levels.length + c)));
    const all = grid.flat().filter((v) => v !== null);
    const [low, high] = [Math.min(...all), Math.max(...all)];
    const text = grid.map((row, r) => row.map((v, c) => {
      const mine = cells.get(r * p.levels.length + c);
      if (!mine) return escape(`${p.name}=${p.levels[c]} ${q.name}=${q.levels[r]}<none>`).replace("&lt;none&gt;", "<br>nothing valid");
      const best = mine.reduce((a, b) => (study.value[b] < study.value[a] ? b : a));
      return `${escape(`${p.name}=${p.levels[c]} ${q.name}=${q.levels[r]}`)}<br>best ${format(study.shown(best))}, median ${format(median(mine.map(study.shown)))} ${study.unit}, of ${mine.length}<br>${escape(textOf(study, best))}`;
    }));
    const few = p.levels.length * q.levels.length <= 150 && p.levels.length <= 14;
    const shade = grid.map((row) => row.map((v) => (v === null ? null : Math.log10(v))));
    const ticks = range(5).map((i) => Math.log10(low) + ((Math.log10(high) - Math.log10(low)) * i) / 4);
    const annotations = [];
    if (few) grid.forEach((row, r) => row.forEach((v, c) => {
      const depth = v === null ? 1 : (Math.log10(v) - ticks[0]) / (ticks[4] - ticks[0] || 1);
      const dark = root.dataset.theme === "dark";
      annotations.push({ x: c, y: r, text: v === null ? "×" : format(v, 3), showarrow: false, font: { size: 11.5, color: v === null ? theme.dim : dark ? (depth < 0.4 ? "#0b1a28" : "#e8eaed") : depth < 0.38 ? "#ffffff" : "#16191d" } });
    }));
    const b = study.best;
    const shapes = b !== null && p.codes[b] >= 0 && q.codes[b] >= 0 ? [{ type: "rect", x0: p.codes[b] - 0.5, x1: p.codes[b] + 0.5, y0: q.codes[b] - 0.5, y1: q.codes[b] + 0.5, line: { color: theme.bad, width: 2.5 } }] : [];
    return {
      data: [{ type: "heatmap", x: range(p.levels.length), y: range(q.levels.length), z: shade, text, colorscale: theme.heat, zmin: ticks[0], zmax: ticks[4], xgap: 2, ygap: 2, hoverongaps: true, hovertemplate: "%{text}<extra></extra>", colorbar: { thickness: 10, len: 0.9, outlinewidth: 0, tickvals: ticks, ticktext: ticks.map((t) => format(10 ** t, 3)), title: { text: `${chosen.how} (${study.unit})`, side: "right", font: { size: 12, color: theme.soft } }, tickfont: { color: theme.soft, size: 11 } } }],
      layout: layout({ height: Math.min(Math.max(150 + 44 * q.levels.length, 280), 620), annotations, shapes, margin: { l: 60, r: 10, t: 8, b: 50 }, xaxis: axis(p.name, { tickvals: range(p.levels.length), ticktext: p.levels.map(escape), showgrid: false, showline: false, ticks: "", range: [-0.5, p.levels.length - 0.5] }), yaxis: axis(q.name, { tickvals: range(q.levels.length), ticktext: q.levels.map(escape), showgrid: false, showline: false, ticks: "", range: [-0.5, q.levels.length - 0.5] }) }),
      points: all.length,
      caption: `The ${chosen.how === "best" ? "best" : "median"} ${valueTitle(study)} of each pair of levels, over all that the other parameters were; dark is fast, × has nothing valid, the frame is the winner's.`.replace("dark is fast", root.dataset.theme === "dark" ? "bright is fast" : "dark is fast"),
      alt: `${chosen.how} ${valueTitle(study)} by ${p.name} and ${q.name}: ${all.length} cells from ${format(low)} to ${format(high)}`,
    };
  };

  const ends = (share) => (share && share.low !== null && share.low !== undefined ? share : null);
  figures.importance = (study) => {
    const found = study.insight;
    if (!found) return { none: study.noInsight || "There is no analysis of this study." };
    const rows = found.parameters.filter((p) => p.alone || p.total);
    if (!rows.length) return { none: sentences(["No shares can be told from these configurations", ...found.notes]) };
    const bar = (name, key, tint) => ({
      type: "bar", orientation: "h", name, y: rows.map((p) => escape(p.name)), x: rows.map((p) => (p[key] ? Math.max(p[key].value, 0) * 100 : null)), marker: { color: tint },
      error_x: { type: "data", symmetric: false, array: rows.map((p) => (ends(p[key]) ? (p[key].high - p[key].value) * 100 : 0)), arrayminus: rows.map((p) => (ends(p[key]) ? (p[key].value - p[key].low) * 100 : 0)), color: theme.soft, thickness: 1.1, width: 3, visible: rows.some((p) => ends(p[key])) },
      hovertemplate: `%{y}: %{x:.1f} %<extra>${name}</extra>`,
    });
    return {
      data: [bar("with interactions", "total", faded(theme.accent, 0.4)), bar("alone", "alone", theme.accent)],
      layout: layout({ height: 100 + 40 * rows.length, showlegend: true, barmode: "group", bargap: 0.35, margin: { l: 40, r: 20, t: 34, b: 46 }, legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "reversed", font: { size: 12 } }, xaxis: axis("share of the variance of log time (%)", { rangemode: "tozero" }), yaxis: axis("", { autorange: "reversed", ticks: "", showgrid: false, showline: false, tickfont: { size: 12.5, color: theme.ink } }) }),
      points: rows.length,
      extra: sentences([found.how, ...found.notes]),
      alt: "Importance: " + rows.map((p) => `${p.name} ${p.alone ? (100 * p.alone.value).toFixed(1) + " % alone" : ""}`).join("; "),
    };
  };

  figures.interactions = (study) => {
    const found = study.insight;
    const pairs = found ? found.pairs.filter((p) => p.share.value > 0.0005) : [];
    if (!pairs.length) return { hide: true };
    return {
      data: [{ type: "bar", orientation: "h", y: pairs.map((p) => escape(`${p.first} × ${p.second}`)), x: pairs.map((p) => 100 * p.share.value), marker: { color: theme.accent }, width: 0.6, hovertemplate: "%{y}: %{x:.1f} %<extra></extra>" }],
      layout: layout({ height: 80 + 26 * pairs.length, margin: { l: 40, r: 20, t: 6, b: 46 }, xaxis: axis("share of the variance of log time (%)", { rangemode: "tozero" }), yaxis: axis("", { autorange: "reversed", ticks: "", showgrid: false, showline: false, tickfont: { size: 12.5, color: theme.ink } }) }),
      points: pairs.length,
      alt: "Interactions: " + pairs.map((p) => `${p.first} with ${p.second} ${(100 * p.share.value).toFixed(1)} %`).join("; "),
    };
  };

  figures.neighbours = (study) => {
    const found = study.insight;
    const all = found ? found.neighbours : [];
    const rows = all.filter((n) => n.slowdown !== null);
    if (!rows.length) return found ? { none: "No neighbour of the winner, one parameter away, was measured." } : { hide: true };
    const name = (n) => `${n.parameter}: ${n.own} → ${n.value}`;
    const percent = (v) => 100 * (v - 1);
    const r = found.robustness, parts = [];
    if (r.median !== null) parts.push(`Of ${r.measured} measured neighbours ${r.within} take at most 5 % more; the median costs ${percent(r.median).toFixed(1)} %, the worst ${percent(r.worst).toFixed(0)} %.`);
    if (r.failed) parts.push(`${r.failed} failed.`);
    if (r.not_measured) parts.push(`${r.not_measured} were not measured.`);
    rows.sort((a, b) => a.slowdown - b.slowdown);
    const shown = rows.slice(0, 40);
    return {
      data: [{ type: "scatter", mode: "markers", x: shown.map((n) => percent(n.slowdown)), y: shown.map((n) => escape(name(n))), marker: { size: 8, color: theme.accent }, error_x: { type: "data", symmetric: false, array: shown.map((n) => (n.high ? percent(n.high) - percent(n.slowdown) : 0)), arrayminus: shown.map((n) => (n.low ? percent(n.slowdown) - percent(n.low) : 0)), color: theme.soft, thickness: 1.2, width: 3 }, hovertemplate: "%{y}<br>%{x:.1f} % more<extra></extra>" }],
      layout: layout({ height: 90 + 22 * shown.length, margin: { l: 40, r: 20, t: 8, b: 46 }, shapes: [rule("x", 0, { line: { color: theme.soft, width: 1, dash: "solid" } })], xaxis: axis("more than the winner takes (%)"), yaxis: axis("", { autorange: "reversed", ticks: "", tickfont: { size: 12, color: theme.ink }, showline: false, type: "category" }) }),
      points: shown.length, extra: parts.join(" "),
      alt: "Neighbours of the winner: " + shown.map((n) => `${name(n)} ${percent(n.slowdown).toFixed(1)} % more`).join("; "),
    };
  };

  figures.samples = (study) => {
    if (!study.finalists.length) return { none: problemOf(study).source === "predicted" ? "Predicted times have no samples." : "The table has no raw samples; the study.db of a run has them." };
    const rows = study.finalists.map((f) => ({ ...f, times: Array.from(column(f.times)) }));
    const centre = Math.min(...rows.map((f) => median(f.times)));
    const [factor, unit] = centre >= 1e3 ? [1e3, "s"] : centre >= 1 ? [1, "ms"] : centre >= 1e-3 ? [1e-3, "µs"] : [1e-6, "ns"];
    const tint = (f) => (f.kind === "library" ? theme.ink : f.winner ? theme.bad : theme.accent);
    // A candidate is called by what tells it from the others.
    const data = rows.map((f, k) => ({ type: "box", orientation: "h", y0: k, x: f.times.map((t) => t / factor), boxpoints: "all", jitter: 0.5, pointpos: 0, width: 0.56, name: escape(clip(f.label, 60)), marker: { size: 4.5, color: tint(f), opacity: 0.6 }, line: { width: 1.3, color: tint(f) }, fillcolor: "rgba(0,0,0,0)", hovertemplate: `%{x:.5~g} ${unit}<extra></extra>` }));
    data.forEach((d, k) => { d.y = d.x.map(() => k); delete d.y0; });
    const kind = study.finalKind === "blocks" ? "block of the confirmation" : "sample of the search";
    const middle = rows.flatMap((f) => { const s = [...f.times].sort((a, b) => a - b); return [s[0], s[Math.floor(0.95 * (s.length - 1))]]; });
    return {
      data,
      layout: layout({ height: 96 + 40 * rows.length, margin: { l: 40, r: 20, t: 8, b: 46 }, xaxis: spread(`time a launch (${unit})`, Math.min(...middle) / factor, Math.max(...middle) / factor), yaxis: axis("", { autorange: "reversed", tickvals: range(rows.length), ticktext: rows.map((f) => escape(clip(f.label, 52)) + (f.winner ? "  ◂" : "")), ticks: "", showgrid: false, showline: false, tickfont: { size: 12, color: theme.ink } }) }),
      points: rows.reduce((n, f) => n + f.times.length, 0),
      caption: `Each dot is one ${kind}, the box median and quartiles; the winner has the arrow.` + (study.finalCommon ? ` All have ${study.finalCommon}.` : ""),
      extra: study.finalKind === "samples" ? "What chose the best says too much in its favour: only a confirmation in turns compares." : "",
      alt: `Times of ${rows.length}: ` + rows.map((f) => `${f.label} median ${format(median(f.times) / factor)} ${unit}`).join("; "),
    };
  };

  const READINGS = [["sm_clock_mhz", "SM clock (MHz)"], ["memory_clock_mhz", "memory clock (MHz)"], ["power_w", "power (W)"], ["temperature_c", "temperature (°C)"]];
  figures.clocks = (study) => {
    const result = problemOf(study).result;
    const places = range(head.studies.length).filter((p) => head.problems[head.studies[p].problem].result === result);
    const kinds = READINGS.filter(([key]) => places.some((p) => head.studies[p].clocks[key]));
    if (!kinds.length) return { none: problemOf(study).source === "predicted" ? "Nothing was timed, so no clock was read." : "The rows have no readings of clocks, power or temperature." };
    const values = kinds.map(() => ({ x: [], y: [], text: [] })), starts = [];
    let at = 0;
    for (const p of places) {
      const s = head.studies[p];
      starts.push([at, s.kernel]);
      kinds.forEach(([key], k) => {
        if (s.clocks[key]) column(s.clocks[key]).forEach((v, i) => { if (isFinite(v)) { values[k].x.push(at + i + 1); values[k].y.push(v); values[k].text.push(escape(s.kernel)); } });
      });
      at += s.tried;
    }
    const gap = 0.07, each = (1 - gap * (kinds.length - 1)) / kinds.length;
    const extra = {}, annotations = [];
    let points = 0;
    const data = kinds.map(([key, title], k) => {
      const axisName = k ? `y${k + 1}` : "y";
      const v = values[k];
      points += v.x.length;
      const keep = thin(range(v.x.length), (i) => v.x[i], (i) => v.y[i], 2500);
      const [a, b] = [v.y.reduce((m, n) => Math.min(m, n)), v.y.reduce((m, n) => Math.max(m, n))];
      // Noise of a part in a thousand is no event: the axis spans at least 4 % of the reading.
      const room = Math.max((b - a) * 0.08, b * 0.02);
      extra[k ? `yaxis${k + 1}` : "yaxis"] = axis(title, { domain: [1 - (k + 1) * each - k * gap, 1 - k * (each + gap)], range: [a - room, b + room], nticks: 5, title: { text: title, font: { size: 12, color: theme.soft }, standoff: 8 } });
      return { type: "scatter", mode: "markers", x: keep.map((i) => v.x[i]), y: keep.map((i) => v.y[i]), text: keep.map((i) => v.text[i]), yaxis: axisName, xaxis: "x", marker: { size: at > 400 ? 3.5 : 5, color: colour(k), opacity: 0.7 }, hovertemplate: `%{text}, row %{x}<br>%{y:,.4~g}<extra>${escape(title)}</extra>` };
    });
    const shapes = starts.length > 1 && starts.length <= 40 ? starts.slice(1).map(([x]) => rule("x", x + 0.5, { layer: "below", line: { color: theme.line, width: 1, dash: "solid" } })) : [];
    if (starts.length > 1 && starts.length <= 14) {
      starts.forEach(([x, kernel], i) => {
        const wide = ((i + 1 < starts.length ? starts[i + 1][0] : at) - x) / at;
        annotations.push(note(clip(kernel, Math.max(Math.round(wide * 130), 3)), { x: x + 0.5, y: 1, yref: "paper", yanchor: "bottom", xanchor: "left", font: { size: 10.5, color: theme.soft } }));
      });
    }
    return {
      data,
      layout: layout({ height: 70 + 130 * kinds.length, margin: { l: 60, r: 18, t: 22, b: 48 }, ...extra, shapes, annotations, xaxis: axis("configurations, in the order of the table", { anchor: kinds.length > 1 ? `y${kinds.length}` : "y", range: [0, at + 1] }) }),
      points,
      alt: kinds.map(([, title], k) => `${title} ${format(Math.min(...values[k].y), 4)} to ${format(Math.max(...values[k].y), 4)}`).join("; ") + ` over ${at} configurations`,
    };
  };

  // Drawing
  // Plotly would offer to send a figure to its makers: nothing leaves this page.
  const CONFIG = { showSendToCloud: false, plotlyServerURL: "", responsive: true, displaylogo: false, displayModeBar: true, modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d", "zoomIn2d", "zoomOut2d"], toImageButtonOptions: { format: "png", scale: 2 } };
  let printing = false;
  const drawn = new Set();
  const captions = new Map(), titles = new Map();
  function show(name) {
    const figure = $("fig-" + name);
    if (!figure) return;
    drawn.add(name);
    const body = figure.querySelector(".body"), controls = figure.querySelector(".controls");
    const caption = figure.querySelector(".cap");
    if (!captions.has(name)) captions.set(name, caption.textContent);
    try {
      const made = figures[name](open(chosen.study), controls);
      figure.hidden = !!made.hide;
      if (made.hide) { report.figures[name] = { points: 0, hidden: true }; return; }
      say(figure, made.none || "");
      if (made.none) { report.figures[name] = { points: 0, none: made.none }; return; }
      const headline = figure.querySelector("h3").lastChild;
      if (!titles.has(name)) titles.set(name, headline.textContent);
      headline.textContent = made.title || titles.get(name);
      caption.textContent = [made.caption || captions.get(name), made.extra].filter(Boolean).join(" ");
      const parts = made.parts || [made];
      body.classList.toggle("small", !!made.parts);
      while (body.children.length > parts.length) { Plotly.purge(body.lastChild); body.lastChild.remove(); }
      while (body.children.length < parts.length) body.append(element("div", { class: "plot", role: "img", tabindex: "0" }));
      parts.forEach((part, i) => {
        const plot = body.children[i];
        plot.setAttribute("aria-label", part.alt || made.alt);
        const title = figure.querySelector("h3").lastChild.textContent;
        const config = { ...CONFIG, toImageButtonOptions: { ...CONFIG.toImageButtonOptions, filename: name } };
        plot.style.height = part.layout.height + "px";
        // Paper is narrower than most screens, and nobody resizes it.
        const paper = printing ? { autosize: false, width: made.parts ? 220 : 680 } : {};
        Plotly.react(plot, part.data, { ...part.layout, ...paper, meta: { title } }, config);
      });
      report.figures[name] = { points: made.points, traces: parts.reduce((n, p) => n + p.data.length, 0) };
    } catch (error) {
      report.errors.push(`${name}: ${error.stack || error}`);
      console.error(name, error);
      say(figure, "This figure could not be drawn.");
    }
  }
  // Figures that have nothing to say are hidden; the others count on.
  function count() {
    let n = 0;
    for (const figure of document.querySelectorAll("figure[data-figure]")) if (!figure.hidden) figure.querySelector(".fn").textContent = `Figure ${++n}`;
    root.dataset.figures = JSON.stringify(report.figures);
    root.dataset.errors = JSON.stringify(report.errors);
  }
  const names = [...document.querySelectorAll("figure[data-figure]")].map((f) => f.dataset.figure);
  const redraw = () => { drawn.forEach(show); count(); };
  report.drawAll = () => { names.forEach((name) => drawn.has(name) || show(name)); count(); };

  // All configurations of the study, the best first, those that failed last.
  const FIRST = 25;
  function table(all = false) {
    const place = $("rows"), study = open(chosen.study);
    const failed = range(study.tried).filter((i) => !isFinite(study.value[i]));
    const order = [...study.order, ...failed];
    const rows = all ? order.slice(0, 2000) : order.slice(0, FIRST);
    const heads = ["#", ...study.params.map((p) => p.name), study.energy ? `energy (${study.unit})` : `time (${study.unit})`, ...(study.energy ? [] : ["95 % interval"]), "GFLOP/s", "status"];
    const number = (name) => !["status"].includes(name);
    const body = rows.map((i, r) => {
      const good = isFinite(study.value[i]);
      const cells = [good ? String(r + 1) : "", ...study.params.map((p) => (p.codes[i] < 0 ? "" : p.levels[p.codes[i]])), good ? format(study.shown(i)) : "",
        ...(study.energy ? [] : [good && isFinite(study.low[i]) ? `${format(study.low[i] / study.factor)} to ${format(study.high[i] / study.factor)}` : ""]),
        good && isFinite(study.gflops[i]) ? Math.round(study.gflops[i]).toLocaleString("en-US") : "",
        study.statuses[study.status[i]] + (study.reason[i] >= 0 ? `: ${study.reasons[study.reason[i]]}` : "")];
      return element("tr", { class: i === study.best ? "best" : null }, ...cells.map((c, k) => element("td", { class: number(heads[k]) ? "num" : "tight" }, c)));
    });
    const count = `${study.kernel}, ${problemOf(study).title}: ${rows.length === order.length ? "all" : "the first " + rows.length.toLocaleString("en-US") + " of"} ${order.length.toLocaleString("en-US")} configurations, best first.`;
    const buttons = element("div", { class: "controls" },
      ...(order.length > FIRST ? [element("button", { type: "button", on: { click: () => table(!all) } }, all ? "Show fewer" : `Show ${Math.min(order.length, 2000).toLocaleString("en-US")}`)] : []),
      element("button", { type: "button", on: { click: () => download(study, order) } }, "Download as CSV"));
    const made = element("table", {}, element("caption", {}, count), element("thead", {}, element("tr", {}, ...heads.map((h) => element("th", { scope: "col", class: number(h) ? "num" : "tight" }, h)))), element("tbody", {}, ...body));
    place.replaceChildren(element("div", { class: "scroll tall", tabindex: "0" }, made), buttons);
  }
  function download(study, order) {
    const quote = (v) => (/[",\n]/.test(v) ? `"${String(v).replace(/"/g, '""')}"` : v);
    const heads = ["trial", ...study.params.map((p) => p.name), ...study.fixed.map((f) => f.name), study.energy ? "energy_j" : "time_ms", "time_low_ms", "time_high_ms", "gflops", "status", "reason"];
    const cell = (v) => (isFinite(v) ? v : "");
    const lines = order.map((i) => [study.trial[i], ...study.params.map((p) => (p.codes[i] < 0 ? "" : p.levels[p.codes[i]])), ...study.fixed.map((f) => f.value), cell(study.value[i]), cell(study.low[i]), cell(study.high[i]), cell(study.gflops[i]), study.statuses[study.status[i]], study.reasons[study.reason[i]] || ""].map(quote).join(","));
    const link = element("a", { href: URL.createObjectURL(new Blob([[heads.join(","), ...lines].join("\n") + "\n"], { type: "text/csv" })), download: `${study.name}.csv` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // Choosing what is shown
  function bestOf(problem) {
    const places = problem.studies.filter((p) => head.studies[p].best !== null);
    if (problem.winner !== null && problem.winner !== undefined) return problem.winner;
    return places[0] ?? problem.studies[0];
  }
  function options(select, texts, values, value) {
    select.replaceChildren(...texts.map((t, i) => element("option", { value: values[i], ...(values[i] === value ? { selected: "" } : {}) }, t)));
  }
  function fill() {
    const problem = head.problems[chosen.problem];
    if ($("problem")) options($("problem"), head.problems.map((p) => p.label), range(head.problems.length), chosen.problem);
    if ($("study")) {
      const texts = labels(problem.studies).map((t, i) => {
        const s = head.studies[problem.studies[i]];
        return `${t} (${s.best === null ? "none valid" : s.tried.toLocaleString("en-US")})${problem.studies[i] === problem.winner && problem.studies.length > 1 ? " – best" : ""}`;
      });
      options($("study"), texts, problem.studies, chosen.study);
    }
  }
  function choose(problem, study) {
    chosen.problem = problem;
    chosen.study = study ?? bestOf(head.problems[problem]);
    fill(); table(); redraw();
  }
  function walk(step) {
    const places = head.problems[chosen.problem].studies;
    choose(chosen.problem, places[(places.indexOf(chosen.study) + step + places.length) % places.length]);
  }
  $("problem")?.addEventListener("change", (e) => choose(Number(e.target.value)));
  $("study")?.addEventListener("change", (e) => choose(chosen.problem, Number(e.target.value)));
  $("before")?.addEventListener("click", () => walk(-1));
  $("after")?.addEventListener("click", () => walk(1));

  const button = $("theme");
  function named() { button.textContent = root.dataset.theme === "dark" ? "Light" : "Dark"; }
  function dress(name) { root.dataset.theme = name; readTheme(); named(); redraw(); }
  button.addEventListener("click", () => {
    const name = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("sweeper-theme", name); } catch (e) { /* a file may have no storage */ }
    dress(name);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (e) => {
    let kept = null;
    try { kept = localStorage.getItem("sweeper-theme"); } catch (error) { /* as above */ }
    if (!kept) dress(e.matches ? "dark" : "light");
  });
  let before = null;
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    printing = true;
    document.querySelectorAll("details").forEach((d) => { d.open = true; });
    names.forEach((name) => drawn.add(name));
    dress("light");
  });
  addEventListener("afterprint", () => { printing = false; if (before) dress(before); });

  readTheme(); named();
  const asked = /study=(\d+)/.exec(location.hash);
  const first = asked && head.studies[asked[1]] ? Number(asked[1]) : null;
  chosen.problem = first === null ? Math.max(0, head.problems.findIndex((p) => p.studies.some((s) => head.studies[s].best !== null))) : head.studies[first].problem;
  choose(chosen.problem, first ?? undefined);
  if (/draw=all/.test(location.hash)) report.drawAll();
  const near = new IntersectionObserver((entries) => entries.forEach((e) => {
    if (e.isIntersecting) { near.unobserve(e.target); if (!drawn.has(e.target.dataset.figure)) { show(e.target.dataset.figure); count(); } }
  }), { rootMargin: "500px" });
  document.querySelectorAll("figure[data-figure]").forEach((f) => near.observe(f));
  const links = new Map([...document.querySelectorAll("nav.toc a")].map((a) => [a.getAttribute("href").slice(1), a]));
  const here = new IntersectionObserver((entries) => entries.forEach((e) => {
    if (e.isIntersecting) links.forEach((a, id) => { a.classList.toggle("here", id === e.target.id); id === e.target.id ? a.setAttribute("aria-current", "true") : a.removeAttribute("aria-current"); });
  }), { rootMargin: "-10% 0px -80% 0px" });
  document.querySelectorAll("main section[id]").forEach((s) => here.observe(s));
  report.ready = true;
  root.dataset.ready = "true";
})().catch((error) => { console.error(error); (window.sweeperReport ||= { errors: [] }).errors.push(String(error.stack || error)); });
