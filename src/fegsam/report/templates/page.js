"use strict";
const root = document.documentElement;
root.classList.add("js");

const tabs = [...document.querySelectorAll("[role=tab]")];
const panels = tabs.map((tab) => document.getElementById(tab.getAttribute("aria-controls")));
const dark = matchMedia("(prefers-color-scheme: dark)");

// Plots are drawn when their panel is first shown, in the page's own colours.
function look(plot) {
  const css = getComputedStyle(root);
  const of = (name) => css.getPropertyValue(name).trim();
  const ink = of("--ink");
  // Replace black by the page's ink.
  const text = plot.parentElement.querySelector("script").textContent.replaceAll("#000000", ink);
  const onDark = dark.matches && !root.classList.contains("printing");
  const figure = JSON.parse(onDark ? text.replaceAll("rgba(0,0,0,", "rgba(255,255,255,") : text);
  for (const axis of [figure.layout.xaxis, figure.layout.yaxis]) {
    Object.assign(axis, { gridcolor: of("--grid"), linecolor: of("--soft"), tickcolor: of("--soft"), showline: true, ticklen: 4, tickangle: 0 });
  }
  const widest = Math.max(...figure.layout.yaxis.ticktext.map((text) => text.length), 1);
  Object.assign(figure.layout, {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
    font: { color: ink, size: 12, family: getComputedStyle(document.body).fontFamily },
    hoverlabel: { bgcolor: of("--raised"), bordercolor: of("--line"), font: { color: ink } },
    margin: { l: 16 + 7.5 * widest, r: 14, t: 8, b: 26 },
    // A finger that scrolls past a plot must not zoom it.
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
  });
  nameCurves(plot, figure.layout);
  thinTicks(plot, figure.layout);
  const hidden = [...plot.closest("figure").querySelectorAll(".legend [aria-pressed=false]")].map((button) => button.dataset.key);
  for (const trace of figure.data) trace.visible = !hidden.includes(trace.meta);
  return figure;
}

const ruler = document.createElement("canvas").getContext("2d");

// The names of the curves stand at their right ends, pushed apart where they would overlap.
function nameCurves(plot, layout) {
  const named = layout.meta.labels;
  if (!named.length) return;
  const most = plot.clientWidth < 520 ? 13 : 30;
  const boxes = named.map((label) => ({ ...label, lines: wrapped(label.text, most) }));
  ruler.font = `12px ${layout.font.family}`;
  const widths = boxes.flatMap((box) => box.lines.map((line) => ruler.measureText("■ " + line).width));
  layout.margin.r = 16 + Math.max(...widths);
  const height = plot.clientHeight - layout.margin.t - layout.margin.b;
  const [low, high] = layout.yaxis.range;
  for (const box of boxes) {
    const value = layout.yaxis.type === "log" ? Math.log10(box.y) : box.y;
    box.size = 15 * box.lines.length + 3;
    box.top = (1 - (value - low) / (high - low)) * height - box.size / 2;
  }
  boxes.sort((one, other) => one.top - other.top);
  let end = -layout.margin.t;
  for (const box of boxes) {
    box.top = Math.max(box.top, end);
    end = box.top + box.size;
  }
  end = height;
  for (const box of [...boxes].reverse()) {
    box.top = Math.min(box.top, end - box.size);
    end = box.top;
  }
  layout.annotations = boxes.map((box) => ({
    xref: "paper", x: 1, xanchor: "left", xshift: 4, yref: "paper", y: 1 - (box.top + box.size / 2) / height, yanchor: "middle",
    align: "left", showarrow: false, font: { size: 12 },
    text: `<span style="color:${box.colour}">${box.dashed ? "╌" : "■"}</span> ` + box.lines.map(escaped).join("<br>"),
  }));
}

// Of the ticks of the x axis, those whose labels leave a gap at this width.
function thinTicks(plot, layout) {
  const axis = layout.xaxis, length = plot.clientWidth - layout.margin.l - layout.margin.r;
  const [low, high] = axis.range, kept = [];
  ruler.font = `12px ${layout.font.family}`;
  let end = -Infinity;
  axis.ticktext.forEach((text, k) => {
    const value = axis.type === "log" ? Math.log10(axis.tickvals[k]) : axis.tickvals[k];
    const middle = ((value - low) / (high - low)) * length, half = ruler.measureText(text).width / 2;
    if (middle - half < end + 8) return;
    kept.push(k);
    end = middle + half;
  });
  Object.assign(axis, { tickvals: kept.map((k) => axis.tickvals[k]), ticktext: kept.map((k) => axis.ticktext[k]) });
}

function wrapped(text, most) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const last = lines.length - 1;
    if (lines[last] && lines[last].length + word.length >= most) lines.push(word);
    else lines[last] = lines[last] ? `${lines[last]} ${word}` : word;
  }
  return lines;
}

function escaped(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}

function draw(plot) {
  const { data, layout } = look(plot);
  plot.dataset.drawn = plot.clientWidth;
  // Plotly's buttons would cover a small panel, and one of them uploads the figure.
  return Plotly.react(plot, data, layout, { displayModeBar: false });
}

function drawVisible() {
  for (const plot of document.querySelectorAll(".plot")) {
    if (plot.clientWidth && Number(plot.dataset.drawn) !== plot.clientWidth) draw(plot);
  }
}

function redraw() {
  for (const plot of document.querySelectorAll(".plot")) delete plot.dataset.drawn;
  drawVisible();
}

// Tabs: the address names the one that is shown, so that links and the back button work.
function show(index, focus) {
  tabs.forEach((tab, k) => {
    tab.setAttribute("aria-selected", String(k === index));
    tab.tabIndex = k === index ? 0 : -1;
    panels[k].hidden = k !== index;
  });
  const strip = tabs[index].parentElement;
  strip.scrollLeft = tabs[index].offsetLeft - strip.clientWidth / 2 + tabs[index].clientWidth / 2;
  if (focus) tabs[index].focus({ preventScroll: true });
  drawVisible();
}

function follow(focus) {
  const target = document.getElementById(location.hash.slice(1));
  const index = panels.findIndex((panel) => panel.contains(target));
  show(Math.max(index, 0), focus);
  // A place within a panel, such as an erratum, was hidden when the browser looked for it.
  if (target && !panels.includes(target)) target.scrollIntoView();
}

function open(index, focus) {
  history.replaceState(null, "", "#" + panels[index].id);
  show(index, focus);
  if (document.scrollingElement.scrollTop > panels[index].offsetTop) panels[index].scrollIntoView();
}

tabs.forEach((tab, k) => {
  tab.addEventListener("click", () => open(k, false));
  tab.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: k + 1, ArrowDown: k + 1, ArrowLeft: k - 1, ArrowUp: k - 1, Home: 0, End: tabs.length - 1 };
    if (!(event.key in moves) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    open((moves[event.key] + tabs.length) % tabs.length, true);
  });
});

// Press a name of a legend to hide or show its curves in every panel of the figure.
for (const button of document.querySelectorAll(".legend button")) {
  button.addEventListener("click", () => {
    const figure = button.closest("figure"), pressed = String(button.getAttribute("aria-pressed") === "false");
    for (const other of figure.querySelectorAll(".legend button"))
      if (other.dataset.key === button.dataset.key) other.setAttribute("aria-pressed", pressed);
    for (const plot of figure.querySelectorAll(".plot")) draw(plot);
  });
}

for (const button of document.querySelectorAll("button[data-picture]")) {
  button.addEventListener("click", () => {
    const plot = button.closest(".panel").querySelector(".plot");
    Plotly.downloadImage(plot, { format: "svg", filename: plot.dataset.key, width: plot.clientWidth, height: plot.clientHeight });
  });
}

// A table of the numbers, for readers who cannot see or point: read from the file that the link downloads.
for (const details of document.querySelectorAll("details[data-numbers]")) {
  details.addEventListener("toggle", () => {
    const box = details.querySelector(".numbers");
    if (!details.open || box.firstChild) return;
    const link = details.parentElement.querySelector("a[download]");
    const rows = decodeURIComponent(link.getAttribute("href").split(",").slice(1).join(",")).trim().split("\n");
    const table = box.appendChild(document.createElement("table"));
    rows.forEach((row, k) => {
      const line = table.insertRow();
      for (const cell of row.match(/("([^"]|"")*"|[^,]*)(,|$)/g).slice(0, 6)) {
        const place = line.appendChild(document.createElement(k ? "td" : "th"));
        if (!k) place.scope = "col";
        const value = cell.replace(/,$/, "").replace(/^"|"$/g, "").replaceAll('""', '"');
        place.textContent = value !== "" && isFinite(value) ? String(Number(Number(value).toPrecision(6))) : value;
      }
    });
  });
}

addEventListener("hashchange", () => follow(false));
addEventListener("resize", drawVisible);
for (const [moment, on] of [["beforeprint", true], ["afterprint", false]]) {
  addEventListener(moment, () => { root.classList.toggle("printing", on); redraw(); });
}
dark.addEventListener("change", redraw);
// Choose the tab before the first plot is drawn, so that nothing moves afterwards.
follow(false);
