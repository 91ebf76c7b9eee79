// What the captures' section adds: two kinds of charts, sortable tables, the choice of a journey.
// Loaded before report.js, which hands its tools to the charts registered here.
(() => {
  "use strict";
  const FASTEST_MS = 0.0001;   // a logarithmic axis knows no zero

  // One box per peer and direction.
  let grouping = "peer";
  const levels = ["min", "p25", "p50", "p75", "p95", "p99", "max"];
  const few = (row, place) => `– (n≥${row.needed[place]})`;
  const boxes = (kit) => ({
    renderer: "svg",
    option(spec) {
      const rows = spec.boxes[grouping].slice().reverse();
      const positive = (value) => Math.max(value, FASTEST_MS);
      // A percentile that so few answers do not carry is null: there the box reaches to the shortest or the longest.
      const at = (row, place) => positive(row.points[place] ?? row.points[place < 2 ? 0 : 6]);
      const all = rows.flatMap((row) => row.points.filter((value) => value !== null).map(positive));
      const low = Math.pow(10, Math.floor(Math.log10(Math.min(...all)))), high = Math.pow(10, Math.ceil(Math.log10(Math.max(...all) * 1.0001)));
      const narrow = kit.width(spec.id) < 640;
      const style = (row) => ({ color: kit.wash(row.slot, 0.28), borderColor: kit.seriesColour(row.slot), borderWidth: 1.8 });
      const points = (place, symbol, size, filled) => ({
        type: "scatter", symbol, symbolSize: size, z: 4, emphasis: { disabled: true },
        data: rows.flatMap((row, y) => (row.points[place] === null ? [] : [{ value: [positive(row.points[place]), y], row, itemStyle: { color: filled ? kit.seriesColour(row.slot) : kit.colour("card"), borderColor: kit.seriesColour(row.slot), borderWidth: 1.6 } }])),
      });
      const told = (row) => `<b>${kit.escape(row.name)}</b> ${kit.escape(row.what)}<br>${kit.words.count(row.n)} asked, ${kit.words.count(row.answered)} answered, ${kit.words.count(row.failed)} failed, ${kit.words.count(row.unanswered)} unanswered<br>` + levels.map((name, i) => `${name} ${row.points[i] === null ? few(row, i) : kit.words.ms(row.points[i])}`).join(" · ");
      return {
        ...kit.shared(), grid: { left: narrow ? 150 : 300, right: 26, top: 8, bottom: 30 },
        tooltip: { trigger: "item", confine: true, backgroundColor: kit.colour("card"), borderColor: kit.colour("rule"), textStyle: { color: kit.colour("ink"), fontSize: 12 }, formatter: (item) => told(item.data.row) },
        xAxis: { type: "log", logBase: 10, min: low, max: Math.max(high, low * 10), ...kit.axisStyle(), axisLabel: { color: kit.colour("soft"), fontSize: 12, hideOverlap: true, formatter: (v) => kit.words.ms(v) } },
        yAxis: { type: "category", data: rows.map((row, i) => String(i)), ...kit.axisStyle(), splitLine: { show: false }, axisLabel: {
          width: narrow ? 136 : 286, overflow: "truncate", fontSize: 12, color: kit.colour("ink"), interval: 0,
          formatter: (i) => `${rows[i].name}{what|  ${rows[i].what}}`, rich: { what: { color: kit.colour("soft"), fontSize: 12 } } } },
        series: [
          { type: "boxplot", boxWidth: [10, 22], emphasis: { disabled: true }, data: rows.map((row) => ({ value: [0, 1, 2, 3, 4].map((i) => at(row, i)), row, itemStyle: style(row) })) },
          points(5, "circle", 7, false), points(6, "diamond", 9, true),
        ],
      };
    },
    table(spec) {
      return [["from → to", "what", "asked", "answered", "failed", "unanswered", ...levels.map((name) => name + " (ms)")],
        spec.boxes[grouping].map((row) => [row.name, row.what, row.n, row.answered, row.failed, row.unanswered, ...row.points.map((value, i) => (value === null ? few(row, i) : value))])];
    },
  });

  // Bytes per second, stacked or side by side; a column may be several seconds.
  const flow = (kit) => ({
    renderer: "svg", cursor: "time",
    option(spec) {
      const lines = kit.shown(spec);
      const width = spec.seconds_per_column;
      const axis = spec.axis || [spec.first_second, spec.first_second + spec.columns * width];
      const span = kit.spanOf(axis[0], axis[1]);
      const sums = Array.from({ length: spec.columns }, (_, i) => (spec.stacked ? lines.reduce((sum, line) => sum + line.data[i], 0) : Math.max(0, ...lines.map((line) => line.data[i]))));
      const most = Math.max(1, spec.top || 0, ...sums);   // charts that are compared share their scale
      const step = Math.pow(2, Math.ceil(Math.log2(most / 5)));
      // A column is as wide as its seconds: both of its ends are drawn.
      const ends = (values) => values.flatMap((value, i) => [[spec.first_second + i * width, value], [spec.first_second + (i + 1) * width, value]]);
      const base = new Array(spec.columns).fill(0);
      const drawn = lines.map((line) => {
        // A band of no height has no edge either.
        const values = line.data.map((value, i) => (spec.stacked ? ((base[i] += value), value ? base[i] : null) : value));
        return { type: "line", name: line.name, data: ends(values), showSymbol: false, emphasis: { disabled: true }, lineStyle: { color: kit.seriesColour(line.slot), width: spec.stacked ? 1.2 : 2, type: line.dash === "dashed" ? [5, 3] : "solid" }, itemStyle: { color: kit.seriesColour(line.slot) }, areaStyle: spec.stacked ? { color: kit.solidWash(line.slot, line.dash === "dashed" ? 0.2 : 0.55), opacity: 1 } : undefined };
      });
      return {
        ...kit.shared(), grid: { left: 84, right: 22, top: 14, bottom: 28 },
        xAxis: { type: "value", min: span[0], max: span[1], minInterval: 1, ...kit.axisStyle(), splitLine: { show: false }, axisLabel: { color: kit.colour("soft"), formatter: kit.clock, fontSize: 12, hideOverlap: true } },
        yAxis: { type: "value", min: 0, max: Math.ceil(most / step) * step, interval: step, ...kit.axisStyle(), axisLabel: { color: kit.colour("soft"), fontSize: 12, formatter: (v) => (v ? kit.words.bytes_per_s(v) : "0") } },
        series: spec.stacked ? drawn.reverse() : drawn,   // the highest sum lies at the back
      };
    },
    read(spec, x) {
      const column = Math.floor((x - spec.first_second) / spec.seconds_per_column);
      if (column < 0 || column >= spec.columns) return null;
      return { values: spec.series.map((line) => kit.words.bytes_per_s(line.data[column])), at: "at " + kit.clock(spec.first_second + column * spec.seconds_per_column) };
    },
    table(spec) {
      return [["second", ...spec.series.map((line) => line.name + " (bytes/s)")], Array.from({ length: spec.columns }, (_, i) => [spec.first_second + i * spec.seconds_per_column, ...spec.series.map((line) => line.data[i])])];
    },
  });

  window.reportKinds = (kit) => {
    for (const button of document.querySelectorAll("[data-boxes]")) button.addEventListener("click", () => {
      grouping = button.dataset.boxes;
      for (const other of document.querySelectorAll("[data-boxes]")) other.setAttribute("aria-pressed", String(other === button));
      const element = document.querySelector('[data-chart="wire-delays"]');
      element.style.height = `${62 + 36 * kit.data.charts["wire-delays"].boxes[grouping].length}px`;
      kit.redraw((spec) => spec.kind === "boxes");
      kit.refill("wire-delays");
    });
    return { boxes: boxes(kit), flow: flow(kit) };
  };

  // ---- tables that can be sorted -----------------------------------------------------------------------------------
  for (const table of document.querySelectorAll("table[data-sortable]")) {
    const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const numeric = head.classList.contains("n");
      const down = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : numeric;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => (numeric ? Number(row.cells[column].dataset.value) : row.cells[column].textContent);
      const order = (a, b) => (numeric ? a - b : a.localeCompare(b));
      const rows = [...table.tBodies[0].rows].sort((a, b) => (down ? -1 : 1) * order(value(a), value(b)));
      table.tBodies[0].append(...rows);
    }));
  }

  // ---- the choice of a journey -------------------------------------------------------------------------------------
  const choice = document.getElementById("journey");
  if (choice) choice.addEventListener("change", () => {
    for (const journey of document.querySelectorAll("[data-journey]")) journey.hidden = journey.dataset.journey !== choice.value;
  });
})();
