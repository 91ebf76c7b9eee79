// Draws the report's charts from the data in the page. No network, no storage but the theme the reader chose.
(() => {
  "use strict";
  const root = document.documentElement;
  window.addEventListener("error", (event) => { root.dataset.error = event.message; });
  const data = JSON.parse(document.getElementById("report-data").textContent);
  const charts = new Map();      // id → {spec, view, element}
  const hidden = new Map();      // id → names switched off
  let spectrumLog = true;
  let timeSpan = "whole";

  // ---- words -------------------------------------------------------------------------------------------------------
  const digits = (value) => {
    if (value === 0) return "0";
    const decimals = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
    const text = value.toFixed(Math.min(decimals, 8));
    return text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
  };
  const grouped = (value) => Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
  const words = {
    ms: (v) => (v < 0.9995 ? digits(v * 1000) + " µs" : v < 999.5 ? digits(v) + " ms" : digits(v / 1000) + " s"),
    per_s: (v) => (v < 100 ? digits(v) : grouped(v)) + "/s",
    count: (v) => (v < 100 ? digits(v) : grouped(v)),
    percent: (v) => digits(v) + " %",
    bytes: (v) => {
      for (const unit of ["B", "KiB", "MiB", "GiB"]) { if (v < 1023.5) return digits(v) + " " + unit; v /= 1024; }
      return digits(v) + " TiB";
    },
    bytes_per_s: (v) => words.bytes(v) + "/s",
  };
  const say = (unit, value) => (value === null || value === undefined ? "–" : words[unit](value));
  const nines = (x) => {
    const percent = 100 * (1 - 1 / x);
    const places = x <= 1 ? 0 : Math.max(0, Math.ceil(Math.log10(x)) - 2 + (Number.isInteger(Math.log10(x)) ? 0 : 1));
    return percent.toFixed(Math.min(places, 8)).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "") + " %";
  };
  const clock = (second) => (Math.abs(second) < 120 ? second + " s" : Math.sign(second) * Math.floor(Math.abs(second) / 60) + ":" + String(Math.abs(second) % 60).padStart(2, "0"));

  // ---- colours -----------------------------------------------------------------------------------------------------
  const probe = document.createElement("i");
  probe.hidden = true;
  document.body.append(probe);
  const colour = (name) => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
  const seriesColour = (slot) => colour(`series-${slot % 7}`);
  const escape = (text) => { const cell = document.createElement("i"); cell.textContent = text; return cell.innerHTML; };

  // ---- options -----------------------------------------------------------------------------------------------------
  const axisStyle = () => ({
    axisLine: { lineStyle: { color: colour("rule") } }, axisTick: { show: false },
    axisLabel: { color: colour("soft"), fontSize: 12 }, splitLine: { lineStyle: { color: colour("hair") } },
    minorSplitLine: { show: false },
  });
  const shared = () => ({
    animation: false, textStyle: { fontFamily: getComputedStyle(document.body).fontFamily },
    grid: { left: 64, right: 22, top: 14, bottom: 30 },
    tooltip: { trigger: "axis", showContent: false, axisPointer: { type: "line", snap: false, lineStyle: { color: colour("faint"), width: 1, type: "solid" }, label: { show: false } } },
  });
  const stroke = (line) => ({ color: seriesColour(line.slot), width: line.dash === "dotted" ? 1.6 : 2.2, type: line.dash === "solid" ? "solid" : line.dash === "dashed" ? [7, 4] : [2, 3] });
  const shown = (spec) => spec.series.filter((line) => !(hidden.get(spec.id) || new Set()).has(line.name));

  function spectrumOption(spec) {
    const lines = shown(spec);
    const end = Math.max(10, ...spec.series.flatMap((line) => line.points.map((point) => point[0])));
    // The fastest few would stretch the scale over decades nobody looks at: it begins below the fastest quarter.
    const low = Math.min(...lines.map((line) => valueAt(line, 4 / 3) || line.points[line.points.length - 1][1])) / 2;
    const high = Math.max(...lines.flatMap((line) => line.points.map((point) => point[1])));
    const reference = (x, name) => ({ xAxis: x, label: { formatter: name, color: colour("faint"), position: "end", fontSize: 11 } });
    return {
      ...shared(), grid: { left: 64, right: 22, top: 24, bottom: 46 },
      xAxis: { type: "log", logBase: 10, min: 1, max: end * 1.25, name: "share of messages at least this fast", nameLocation: "middle", nameGap: 30, nameTextStyle: { color: colour("soft") }, ...axisStyle(), axisLabel: { color: colour("soft"), formatter: (x) => (Number.isInteger(Math.round(Math.log10(x) * 1e6) / 1e6) ? nines(x) : ""), fontSize: 12 } },
      yAxis: { type: spectrumLog ? "log" : "value", min: spectrumLog ? Math.pow(10, Math.floor(Math.log10(low || 0.001))) : 0, max: spectrumLog ? Math.pow(10, Math.ceil(Math.log10(high || 1))) : undefined, ...axisStyle(), axisLabel: { color: colour("soft"), formatter: (v) => (v === 0 ? "0" : words.ms(v)), fontSize: 12 } },
      series: lines.map((line, index) => ({
        type: "line", name: line.name, data: line.points, step: "start", showSymbol: false, lineStyle: stroke(line), itemStyle: { color: seriesColour(line.slot) }, emphasis: { disabled: true },
        markPoint: line.lost > 0 && (index === 0 || spec.marks === "all") ? { symbol: "circle", symbolSize: 9, data: [{ coord: line.points[line.points.length - 1] }], label: { formatter: `∞  ${digits(line.lost * 100)} % never arrived`, position: "top", distance: 8, color: colour("bad"), fontWeight: 600 }, itemStyle: { color: colour("bad") } } : undefined,
        markLine: index === 0 ? { silent: true, symbol: "none", lineStyle: { color: colour("rule"), type: "solid" }, data: [reference(2, "median"), reference(100, "p99"), reference(1000, "p99.9")].filter((mark) => mark.xAxis < end) } : undefined,
      })),
    };
  }

  function spanOf(first, end) {
    const measure = data.phases.find((phase) => phase.name === "measure");
    return timeSpan === "measure" && measure ? [Math.max(first, Math.floor(measure.start)), Math.min(end, Math.ceil(measure.end))] : [first, end];
  }
  // Steps of 1, 2, 4, … units: 16 MiB reads better than 19.1 MiB.
  const binaryStep = (most) => Math.pow(2, Math.ceil(Math.log2(Math.max(1, most) / 5)));

  function timeOption(spec) {
    const lines = shown(spec);
    const seconds = spec.seconds;
    const span = spanOf(seconds[0], seconds[seconds.length - 1] + 1);
    const labels = spec.id === "rates";
    const bands = data.phases.filter((phase) => phase.name !== "connect").map((phase) => [
      { xAxis: Math.max(phase.start, span[0]), itemStyle: { color: phase.name === "measure" ? "transparent" : colour("band") }, label: { show: labels && phase.end - phase.start > (span[1] - span[0]) / 16, formatter: phase.label, position: "insideTop", color: colour("faint"), fontSize: 11 } },
      { xAxis: Math.min(phase.end, span[1]) },
    ]).filter((band) => band[0].xAxis < band[1].xAxis);
    const positive = lines.flatMap((line) => line.data).filter((v) => v > 0);
    const most = positive.length ? Math.max(...positive) : 1;
    const floor = positive.length ? Math.pow(10, Math.floor(Math.log10(Math.min(...positive)))) : 0.1;
    const step = spec.unit === "bytes" ? binaryStep(most) : undefined;
    const top = spec.log ? Math.max(10 * floor, Math.pow(10, Math.ceil(Math.log10(most)))) : step ? Math.ceil(most / step) * step : undefined;
    const never = lines.flatMap((line) => (line.infinite || []).map((i) => ({ value: [seconds[i] + 0.5, top], itemStyle: { color: seriesColour(line.slot) } })));
    return {
      ...shared(), grid: { left: 64, right: 22, top: labels ? 22 : 14, bottom: 28 },
      xAxis: { type: "value", min: span[0], max: span[1], ...axisStyle(), splitLine: { show: false }, axisLabel: { color: colour("soft"), formatter: clock, fontSize: 12, hideOverlap: true } },
      yAxis: { type: spec.log ? "log" : "value", min: spec.log ? floor : 0, max: top, interval: step, minInterval: spec.unit === "count" ? 1 : undefined, ...axisStyle(), splitNumber: 4, axisLabel: { color: colour("soft"), formatter: (v) => say(spec.unit, v), fontSize: 12 } },
      series: lines.map((line, index) => ({
        type: "line", name: line.name, showSymbol: false, sampling: "lttb", connectNulls: false, emphasis: { disabled: true },
        data: line.data.map((value, i) => [seconds[i] + 0.5, spec.log && value !== null && value <= 0 ? null : value]),
        lineStyle: stroke(line), itemStyle: { color: seriesColour(line.slot) },
        areaStyle: line.area ? { color: seriesColour(line.slot), opacity: 0.12 } : undefined,
        markArea: index === 0 ? { silent: true, data: bands } : undefined,
      })).concat(never.length ? [{ type: "scatter", data: never, symbol: "triangle", symbolSize: 8, silent: true, clip: false }] : []),
    };
  }

  function heatOption(spec) {
    const width = spec.seconds_per_column;
    const [from, to] = spanOf(spec.first_second, spec.first_second + spec.columns * width);
    const first = Math.floor((from - spec.first_second) / width), end = Math.ceil((to - spec.first_second) / width);
    const bands = spec.bins.slice(0, -1).map(String);
    const columns = Array.from({ length: end - first }, (_, i) => String(spec.first_second + (first + i) * width));
    const inside = (cell) => cell[0] >= first && cell[0] < end;
    const decade = (i) => { const v = Math.log10(spec.bins[i]); return Math.abs(v - Math.round(v)) < 0.01; };
    const most = Math.max(...spec.cells.map((cell) => cell[2]));
    const bandOf = (i) => (i < bands.length ? `${words.ms(spec.bins[i])} to ${words.ms(spec.bins[i + 1])}` : "never arrived");
    const step = niceStep(columns.length * width);
    return {
      ...shared(), grid: { left: 64, right: 22, top: 12, bottom: 28 },
      tooltip: { trigger: "item", backgroundColor: colour("card"), borderColor: colour("rule"), textStyle: { color: colour("ink"), fontSize: 12 },
        formatter: (item) => `${clock(Number(columns[item.value[0]]))}: ${grouped(item.value[3])} messages, ${bandOf(item.value[1])}` },
      xAxis: { type: "category", data: columns, ...axisStyle(), splitLine: { show: false }, axisLabel: { color: colour("soft"), fontSize: 12, interval: (i, v) => Number(v) % step < width && Number(v) % step >= 0, formatter: (v) => clock(Number(v)) } },
      yAxis: { type: "category", data: spec.lost.length ? [...bands, "never"] : bands, ...axisStyle(), splitLine: { show: false }, axisLabel: { color: colour("soft"), fontSize: 12, interval: (i) => i === bands.length || decade(i), formatter: (v) => (v === "never" ? "never" : words.ms(Number(v))) } },
      visualMap: { show: false, dimension: 2, min: 0, max: Math.log1p(most), inRange: { color: ["heat-0", "heat-1", "heat-2", "heat-3"].map(colour) }, seriesIndex: 0 },
      series: [
        { type: "heatmap", data: spec.cells.filter(inside).map((cell) => [cell[0] - first, cell[1], Math.log1p(cell[2]), cell[2]]), emphasis: { disabled: true }, progressive: 0 },
        { type: "heatmap", data: spec.lost.filter(inside).map((cell) => ({ value: [cell[0] - first, bands.length, 0, cell[1]], itemStyle: { color: colour("bad") } })), emphasis: { disabled: true }, visualMap: false },
      ],
    };
  }
  const niceStep = (span) => [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600].find((step) => span / step <= 12) || 7200;

  // ---- drawing -----------------------------------------------------------------------------------------------------
  // What the page can draw. `cursor`: charts of one cursor are read together; `read` says what lies under it.
  const kinds = {
    spectrum: { option: spectrumOption, renderer: "svg", cursor: "spectrum", read: readSpectrum, table: spectrumTable },
    time: { option: timeOption, renderer: "svg", cursor: "time", read: readTime, table: timeTable },
    heat: { option: heatOption, renderer: "canvas", table: heatTable },
  };
  const mixed = (slot, share, under) => { probe.style.color = `color-mix(in srgb, var(--series-${slot % 7}) ${share * 100}%, ${under})`; return getComputedStyle(probe).color; };
  const kit = {
    data, words, digits, clock, colour, seriesColour, escape, axisStyle, shared, shown, spanOf,
    wash: (slot, share) => mixed(slot, share, "transparent"), solidWash: (slot, share) => mixed(slot, share, "var(--card)"),
    width: (id) => charts.get(id).element.clientWidth,
    redraw: (only) => redraw(only), refill: (id) => refill(id),
  };
  if (window.reportKinds) Object.assign(kinds, window.reportKinds(kit));
  const optionOf = (spec) => kinds[spec.kind].option(spec);
  const redraw = (only) => { for (const { spec, view } of charts.values()) if (!only || only(spec)) view.setOption(optionOf(spec), { notMerge: true, silent: true }); };

  function legend(spec, figure) {
    const caption = figure.querySelector("figcaption");
    if (!caption || !spec.series) return;
    const dashes = { solid: "", dashed: "6 3", dotted: "2 2.5" };
    for (const line of spec.series) {
      const button = document.createElement("button");
      button.type = "button"; button.className = "legend"; button.setAttribute("aria-pressed", "true");
      button.innerHTML = `<svg viewBox="0 0 26 10" aria-hidden="true"><line x1="1" y1="5" x2="25" y2="5" stroke="var(--series-${line.slot % 7})" stroke-width="3" stroke-dasharray="${dashes[line.dash]}"/></svg><span></span><output></output>`;
      button.querySelector("span").textContent = line.name;
      button.dataset.name = line.name;
      button.addEventListener("click", () => {
        const off = hidden.get(spec.id) || new Set();
        off.has(line.name) ? off.delete(line.name) : off.add(line.name);
        if (off.size === spec.series.length) off.clear();
        hidden.set(spec.id, off);
        for (const other of caption.querySelectorAll(".legend")) other.setAttribute("aria-pressed", String(!off.has(other.dataset.name)));
        redraw((one) => one.id === spec.id);
      });
      caption.append(button);
    }
    const at = document.createElement("span");
    at.className = "at";
    caption.append(at);
  }

  function readOut(spec, figure, x) {
    const caption = figure.querySelector("figcaption");
    const at = caption.querySelector(".at");
    const outputs = caption.querySelectorAll("output");
    if (x === null) { outputs.forEach((output) => { output.textContent = ""; }); at.textContent = ""; return; }
    const found = kinds[spec.kind].read(spec, x);
    if (!found) return;
    found.values.forEach((value, i) => { outputs[i].textContent = value; });
    at.textContent = found.at;
  }
  function readTime(spec, x) {
    const index = Math.floor(x) - spec.seconds[0];
    if (index < 0 || index >= spec.seconds.length) return null;
    return { values: spec.series.map((line) => ((line.infinite || []).includes(index) ? "∞" : say(spec.unit, line.data[index]))), at: "at " + clock(spec.seconds[index]) };
  }
  function readSpectrum(spec, x) {
    return { values: spec.series.map((line) => say("ms", valueAt(line, x))), at: nines(Math.max(1, x)).replace(/(\.\d*?[1-8]\d?)\d*( %)/, "$1$2") };
  }
  // The rank rule of the summary: the first point whose share reaches p.
  function valueAt(line, x) {
    const found = line.points.find((point) => point[0] >= x * 0.9999999);
    return found ? found[1] : null;
  }

  function draw() {
    let open = 0;
    const done = () => { if (--open === 0) root.dataset.charts = "drawn"; };
    for (const element of document.querySelectorAll(".chart[data-chart]")) {
      const spec = data.charts[element.dataset.chart];
      if (!spec) continue;
      const figure = element.closest("figure");
      const view = echarts.init(element, null, { renderer: kinds[spec.kind].renderer });
      charts.set(spec.id, { spec, view, element });
      legend(spec, figure);
      const cursor = kinds[spec.kind].cursor;
      if (cursor === "time") view.group = "time";
      if (cursor) {
        view.on("updateAxisPointer", (event) => {
          const axis = (event.axesInfo || [])[0];
          if (!axis) return;
          for (const other of charts.values()) if (other.spec === spec || (cursor === "time" && kinds[other.spec.kind].cursor === "time")) readOut(other.spec, other.element.closest("figure"), axis.value);
        });
        view.on("globalout", () => { for (const other of charts.values()) if (kinds[other.spec.kind].cursor) readOut(other.spec, other.element.closest("figure"), null); });
      }
      open += 1;
      let first = true;
      view.on("finished", () => { if (first) { first = false; done(); } });
      view.setOption(optionOf(spec));
      new ResizeObserver(() => view.resize()).observe(element);
    }
    echarts.connect("time");
    if (open === 0) root.dataset.charts = "drawn";
  }

  // ---- tables behind charts ----------------------------------------------------------------------------------------
  function timeTable(spec) {
    return [["second", ...spec.series.map((line) => line.name)], spec.seconds.map((second, i) => [second, ...spec.series.map((line) => ((line.infinite || []).includes(i) ? "∞" : line.data[i]))])];
  }
  function heatTable(spec) {
    const lost = new Map(spec.lost);
    const sums = new Map();
    for (const [column, , n] of spec.cells) sums.set(column, (sums.get(column) || 0) + n);
    return [["second", "arrived", "never arrived"], Array.from({ length: spec.columns }, (_, i) => [spec.first_second + i * spec.seconds_per_column, sums.get(i) || 0, lost.get(i) || 0])];
  }
  function spectrumTable(spec) {
    const levels = [1, 2, 4, 10, 20, 100, 200, 1000, 10000, 100000].filter((x) => spec.series.some((line) => line.n >= x));
    return [["share of messages", ...spec.series.map((line) => line.name + " (ms)")], levels.map((x) => [nines(x), ...spec.series.map((line) => tableValue(line, x))])];
  }
  // Beyond the end of a curve there are too few messages: how many it would need, at 95 % confidence.
  function tableValue(line, x) {
    if (x > line.end * 1.0000001) return line.lost * line.end > 1.0000001 ? "∞" : `– (n≥${grouped(Math.ceil(Math.log(0.05) / Math.log(1 - 1 / x)))})`;
    const value = valueAt(line, x);
    return value === null && line.lost ? "∞" : value;
  }
  function fill(details) {
    const spec = data.charts[details.dataset.table];
    if (!spec || details.querySelector("table")) return;
    const [head, rows] = kinds[spec.kind].table(spec);
    const scroll = document.createElement("div"); scroll.className = "scroll"; scroll.tabIndex = 0;
    const table = document.createElement("table");
    const add = (parent, tag, text, numeric) => { const cell = document.createElement(tag); cell.textContent = text; if (numeric) cell.className = "n"; parent.append(cell); };
    const headRow = table.createTHead().insertRow();
    head.forEach((text, i) => add(headRow, "th", text, i > 0));
    const body = table.createTBody();
    for (const row of rows) { const line = body.insertRow(); row.forEach((value, i) => add(line, "td", value === null ? "–" : String(value), i > 0)); }
    scroll.append(table);
    const save = document.createElement("button");
    save.type = "button"; save.className = "tool"; save.textContent = "Save as CSV";
    save.addEventListener("click", () => download(`${spec.id}.csv`, "text/csv", [head, ...rows].map((row) => row.map((v) => (v === null ? "" : /[",\n]/.test(String(v)) ? `"${String(v).replaceAll('"', '""')}"` : v)).join(",")).join("\n") + "\n"));
    details.append(scroll, save);
  }
  function refill(id) {
    const details = [...document.querySelectorAll("details[data-table]")].find((one) => one.dataset.table === id);
    details.querySelectorAll(".scroll, .tool").forEach((old) => old.remove());
    if (details.open) fill(details);
  }
  function download(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // ---- controls ----------------------------------------------------------------------------------------------------
  const keep = (theme) => { try { localStorage.setItem("battlebrokers-theme", theme); } catch { /* opened from disk: the choice lasts for this visit */ } };
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const label = (button) => { button.textContent = dark() ? "Light" : "Dark"; button.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`); };
  try { const kept = localStorage.getItem("battlebrokers-theme"); if (kept === "light" || kept === "dark") root.dataset.theme = kept; } catch { /* as above */ }
  const wanted = new URLSearchParams(location.search).get("theme");  // report.html?theme=dark, for screenshots
  if (wanted === "light" || wanted === "dark") root.dataset.theme = wanted;

  const themeButton = document.getElementById("theme");
  label(themeButton);
  themeButton.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; keep(root.dataset.theme); label(themeButton); redraw(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { label(themeButton); redraw(); });
  window.addEventListener("beforeprint", () => { root.dataset.before = root.dataset.theme || ""; root.dataset.theme = "light"; redraw(); });
  window.addEventListener("afterprint", () => { if (root.dataset.before) root.dataset.theme = root.dataset.before; else delete root.dataset.theme; redraw(); });
  for (const button of document.querySelectorAll("[data-span]")) button.addEventListener("click", () => {
    timeSpan = button.dataset.span;
    for (const other of document.querySelectorAll("[data-span]")) other.setAttribute("aria-pressed", String(other === button));
    redraw((spec) => spec.kind !== "spectrum");
  });
  for (const button of document.querySelectorAll("[data-scale]")) button.addEventListener("click", () => {
    spectrumLog = button.dataset.scale === "log";
    for (const other of document.querySelectorAll("[data-scale]")) other.setAttribute("aria-pressed", String(other === button));
    redraw((spec) => spec.kind === "spectrum");
  });
  for (const details of document.querySelectorAll("details[data-table]")) details.addEventListener("toggle", () => fill(details));
  document.getElementById("save").addEventListener("click", () => {
    const all = Object.values(data.summaries);
    download(all.length === 1 ? "summary.json" : "summaries.json", "application/json", JSON.stringify(all.length === 1 ? all[0] : all, null, 2) + "\n");
  });
  document.getElementById("print").addEventListener("click", () => window.print());

  draw();
})();
