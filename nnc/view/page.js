"use strict";
const get = (id) => document.getElementById(id);
const stage = get("stage"), svg = stage.querySelector("svg"), about = get("about");
const whole = svg.getAttribute("viewBox").split(" ").map(Number);
const items = [...svg.querySelectorAll(".item")];
const textOf = new Map(items.map((item) => [item, item.querySelector(":scope > title").textContent]));

// -- moving and zooming: the view is a corner in the drawing and a scale ----------------------------------------------
const view = { x: 0, y: 0, scale: 1 };

function show(x, y, scale) {
  Object.assign(view, { x, y, scale: Math.min(Math.max(scale, 1e-3), 200) });
  const size = [stage.clientWidth / view.scale, stage.clientHeight / view.scale];
  svg.setAttribute("viewBox", [view.x, view.y, ...size].join(" "));
  drawMap();
}

function fit() {
  const scale = Math.min(stage.clientWidth / whole[2], stage.clientHeight / whole[3], 2);
  const middle = [whole[0] + whole[2] / 2, whole[1] + whole[3] / 2];
  show(middle[0] - stage.clientWidth / 2 / scale, middle[1] - stage.clientHeight / 2 / scale, scale);
}

function start() { // all of it where that can be read, else where the drawing begins
  fit();
  if (view.scale < 0.5 && svg.dataset.start) {
    map.hidden = false;
    const [x, y] = svg.dataset.start.split(" ").map(Number);
    show(x - stage.clientWidth / 2 / 0.9, y - 80, 0.9);
  }
}

function zoom(factor, x = stage.clientWidth / 2, y = stage.clientHeight / 2) {
  const scale = view.scale * factor;
  show(view.x + x / view.scale - x / scale, view.y + y / view.scale - y / scale, scale);
}

stage.addEventListener("wheel", (event) => {
  event.preventDefault();
  const box = stage.getBoundingClientRect();
  zoom(Math.exp(-event.deltaY * 0.0015), event.clientX - box.left, event.clientY - box.top);
}, { passive: false });

let drag = null, dragged = false;
stage.addEventListener("pointerdown", (event) => {
  drag = { x: event.clientX, y: event.clientY, view: { ...view } };
  dragged = false;
});
window.addEventListener("pointerup", () => { drag = null; });
window.addEventListener("pointermove", (event) => {
  if (drag === null) return;
  const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
  dragged ||= Math.hypot(dx, dy) > 3;
  show(drag.view.x - dx / view.scale, drag.view.y - dy / view.scale, view.scale);
});
window.addEventListener("resize", () => show(view.x, view.y, view.scale));
window.addEventListener("keydown", (event) => {
  if (event.target === get("search")) return;
  const by = 80 / view.scale;
  const moves = { ArrowLeft: [-by, 0], ArrowRight: [by, 0], ArrowUp: [0, -by], ArrowDown: [0, by] };
  if (event.key in moves) show(view.x + moves[event.key][0], view.y + moves[event.key][1], view.scale);
  if (event.key === "+" || event.key === "=") zoom(1.25);
  if (event.key === "-") zoom(0.8);
  if (event.key === "0") fit();
});

// -- a map of large drawings, stretched to fill its place --------------------------------------------------------------
const map = get("map"), boxes = [...svg.querySelectorAll(":scope > .drawing > .box")];
const colors = new Map(boxes.map((box) => [box, getComputedStyle(box.querySelector("rect")).stroke]));

function drawMap() {
  if (map.hidden) return;
  [map.width, map.height] = [map.clientWidth, map.clientHeight];
  const pen = map.getContext("2d"), across = map.width / whole[2], down = map.height / whole[3];
  const fill = (x, y, width, height) =>
    pen.fillRect((x - whole[0]) * across, (y - whole[1]) * down, Math.max(width * across, 2), Math.max(height * down, 1));
  for (const box of boxes) {
    const { e: x, f: y } = box.transform.baseVal[0].matrix, size = box.querySelector("rect");
    pen.fillStyle = colors.get(box);
    pen.globalAlpha = box.classList.contains("dim") ? 0.1 : 1;
    fill(x, y, size.width.baseVal.value, size.height.baseVal.value);
  }
  pen.globalAlpha = 0.25;
  pen.fillStyle = "#d00";
  fill(view.x, view.y, stage.clientWidth / view.scale, Math.max(stage.clientHeight / view.scale, 4 / down));
}

function jump(event) {
  if (!event.buttons) return;
  const x = whole[0] + event.offsetX / map.width * whole[2], y = whole[1] + event.offsetY / map.height * whole[3];
  const scale = Math.max(view.scale, 0.4);
  show(x - stage.clientWidth / 2 / scale, y - stage.clientHeight / 2 / scale, scale);
}
map.addEventListener("pointerdown", jump);
map.addEventListener("pointermove", jump);

// -- reading about a shape: it, what has the same key, and its wires are lit -------------------------------------------
const byKey = new Map();
function list(key, shape) { if (key !== undefined) byKey.set(key, [...(byKey.get(key) ?? []), shape]); }
items.forEach((item) => list(item.dataset.key, item));
svg.querySelectorAll("path[data-from]").forEach((wire) => { list(wire.dataset.from, wire); list(wire.dataset.to, wire); });

let lit = null, kept = false;
function light(item) {
  if (item === lit) return;
  if (lit !== null) byKey.get(lit.dataset.key).forEach((shape) => shape.classList.remove("lit"));
  if (item !== null) {
    byKey.get(item.dataset.key).forEach((shape) => shape.classList.add("lit"));
    about.textContent = textOf.get(item);
  }
  lit = item;
}
svg.addEventListener("pointerover", (event) => { if (!kept && drag === null) light(event.target.closest(".item")); });
svg.addEventListener("click", (event) => {
  if (dragged) return;
  if (event.detail && event.target.classList.contains("fold")) { toggle(event.target.closest(".item")); return; }
  const item = event.target.closest(".item");
  kept = item !== null && !(kept && item === lit);
  light(item);
});

// -- sub-graphs that fold: rows of a drawing grow lower, and what is below moves up ------------------------------------
const foldable = items.filter((item) => item.querySelector(":scope > .drawing") !== null);
const folded = new Set();

function heightOf(item) {
  const full = Number(item.dataset.height);
  if (item.dataset.header === undefined) return full;
  const inside = [...item.querySelectorAll(":scope > .drawing")];
  const closed = folded.has(item);
  inside.forEach((drawing) => { drawing.style.display = closed ? "none" : ""; });
  const tallest = Math.max(...inside.map((drawing) => Number(drawing.dataset.height)));
  const height = closed ? Number(item.dataset.header) : full - tallest + Math.max(...inside.map(arrange));
  item.querySelector(":scope > rect").setAttribute("height", height);
  item.querySelector(":scope > .fold").textContent = closed ? "▸" : "▾";
  return height;
}

function arrange(drawing) {
  const rows = JSON.parse(drawing.dataset.rows).map(([top, height]) => ({ top, height, now: 0 }));
  const boxes = [...drawing.querySelectorAll(":scope > .box")];
  for (const box of boxes) rows[box.dataset.row].now = Math.max(rows[box.dataset.row].now, heightOf(box));
  const changed = rows.filter((row) => row.now < row.height);
  const place = (y) => {
    let lost = 0;
    for (const row of changed) {
      if (y < row.top + row.height) return Math.min(y, Math.max(row.top + row.now, row.top)) - lost;
      lost += row.height - row.now;
    }
    return y - lost;
  };
  for (const box of boxes) box.setAttribute("transform", `translate(${box.dataset.x} ${place(Number(box.dataset.y))})`);
  for (const wire of drawing.querySelectorAll(":scope > path")) {
    wire.dataset.d ??= wire.getAttribute("d");
    wire.setAttribute("d", wire.dataset.d.replace(/(-?[\d.]+) (-?[\d.]+)/g, (_, x, y) => `${x} ${place(Number(y))}`));
  }
  return place(Number(drawing.dataset.height));
}

function rearrange() {
  const drawing = svg.querySelector(":scope > .drawing");
  whole[3] = arrange(drawing) - 2 * whole[1]; // its corner is the margin, below 0
  show(view.x, view.y, view.scale);
}

function toggle(item) {
  if (!folded.delete(item)) folded.add(item);
  rearrange();
}

function foldAll(closed) {
  folded.clear();
  if (closed) foldable.forEach((item) => folded.add(item));
  rearrange();
}

if (foldable.length) {
  get("folds").hidden = false;
  get("open").addEventListener("click", () => foldAll(false));
  get("close").addEventListener("click", () => foldAll(true));
  if (items.length > 150) foldAll(true);
}

// -- searching ---------------------------------------------------------------------------------------------------------
let matches = [], turn = 0;

function outerItems(item) {
  const outer = item.parentElement.closest(".item");
  return outer === null ? [] : [outer, ...outerItems(outer)];
}

get("search").addEventListener("input", (event) => {
  const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = new Set(items.filter((item) => words.every((word) => textOf.get(item).toLowerCase().includes(word))));
  matches = words.length ? [...found] : [];
  turn = 0;
  const around = new Set(matches.flatMap(outerItems));
  items.forEach((item) => item.classList.toggle("dim", matches.length > 0 && !found.has(item) && !around.has(item)));
  get("found").textContent = words.length ? `${matches.length} found` : "";
  drawMap();
});
get("search").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || matches.length === 0) return;
  const item = matches[turn++ % matches.length];
  outerItems(item).filter((outer) => folded.has(outer)).forEach(toggle);
  const box = item.getBoundingClientRect(), frame = stage.getBoundingClientRect();
  const x = view.x + (box.left + box.width / 2 - frame.left) / view.scale;
  const y = view.y + (box.top + box.height / 2 - frame.top) / view.scale;
  const scale = Math.max(view.scale, 0.9);
  show(x - stage.clientWidth / 2 / scale, y - stage.clientHeight / 2 / scale, scale);
  light(item);
  get("found").textContent = `${(turn - 1) % matches.length + 1} of ${matches.length}`;
});

get("fit").addEventListener("click", fit);
get("start").addEventListener("click", start);
get("in").addEventListener("click", () => zoom(1.25));
get("out").addEventListener("click", () => zoom(0.8));
svg.removeAttribute("width");
svg.removeAttribute("height");
start();
