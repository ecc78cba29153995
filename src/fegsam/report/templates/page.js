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
  const narrow = plot.clientWidth < 620;
  for (const axis of [figure.layout.xaxis, figure.layout.yaxis]) {
    Object.assign(axis, { gridcolor: of("--grid"), linecolor: of("--soft"), tickcolor: of("--soft"), showline: true });
  }
  Object.assign(figure.layout, {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
    font: { color: ink, size: narrow ? 12 : 13, family: getComputedStyle(document.body).fontFamily },
    hoverlabel: { bgcolor: of("--raised"), bordercolor: of("--line"), font: { color: ink } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: of("--soft"), activecolor: ink },
    // A finger that scrolls past a plot must not zoom it.
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
  });
  if (narrow) figure.layout.margin.l = 56;
  // Long names beside the plot would take its space, so they go below it.
  if (narrow || figure.data.some((trace) => trace.name.length > 26)) {
    Object.assign(figure.layout.legend, { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0, xanchor: "left" });
  }
  return figure;
}

function draw(plot) {
  const { data, layout } = look(plot);
  plot.dataset.drawn = plot.clientWidth;
  return Plotly.react(plot, data, layout, {
    displaylogo: false,
    // Listed explicitly: Plotly's default buttons include one that uploads the figure.
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    toImageButtonOptions: { format: "svg", filename: plot.dataset.key },
  });
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
  const index = panels.findIndex((panel) => "#" + panel.id === location.hash);
  show(Math.max(index, 0), focus);
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
