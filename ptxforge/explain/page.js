"use strict";
// The page of one kernel. All content comes from the JSON in #data; see page.py for its form.

const data = JSON.parse(document.getElementById("data").textContent);
const byKey = new Map(); // key -> elements that light up together
let pinned = [];

function element(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "text") made.textContent = value;
    else if (name === "class") made.className = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function drawn(tag, options = {}, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(options)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

// -- lines that belong together --------------------------------------------------------------------------

function tie(made, keys) {
  if (!keys || !keys.length) return made;
  made.setAttribute("data-k", keys.join(" "));
  for (const key of keys) {
    if (!byKey.has(key)) byKey.set(key, new Set());
    byKey.get(key).add(made);
  }
  return made;
}

function untie(box) {
  for (const made of box.querySelectorAll("[data-k]")) {
    for (const key of keysOf(made)) byKey.get(key)?.delete(made);
  }
  box.replaceChildren();
}

const keysOf = (made) => made.getAttribute("data-k").split(" ").map(Number);

function mark(keys, name, on) {
  for (const key of keys) for (const made of byKey.get(key) || []) made.classList.toggle(name, on);
}

function pin(keys, from) {
  mark(pinned, "pin", false);
  pinned = String(keys) === String(pinned) ? [] : keys;
  mark(pinned, "pin", true);
  if (!pinned.length) return;
  for (const box of document.querySelectorAll(".scroll")) {
    if (box.contains(from) || !box.offsetParent) continue;
    const first = box.querySelector(".pin");
    if (first) box.scrollTop += first.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 3;
  }
}

let lit = [];
document.addEventListener("mouseover", (event) => {
  const made = event.target.closest?.("[data-k]");
  mark(lit, "lit", false);
  lit = made ? keysOf(made) : [];
  mark(lit, "lit", true);
});
document.addEventListener("click", (event) => {
  const made = event.target.closest?.("[data-k]");
  if (made) pin(keysOf(made), made);
});

const keysOfLine = (line) => (line !== null && String(line) in data.line_keys ? [data.line_keys[String(line)]] : []);

function textLine(text, keys, ...before) {
  return tie(element("div", { class: "line" }, ...before, element("span", { text: text || " " })), keys);
}

function numbered(lines) {
  return lines.map(([text, keys], row) => textLine(text, keys, element("span", { class: "number", text: row + 1 })));
}

// -- source, advice --------------------------------------------------------------------------------------

const GLYPHS = { error: "✖", warning: "▲", note: "●" };

function source() {
  const box = element("div", { class: "scroll source", id: "source" });
  const said = [...data.findings, ...data.advice];
  for (const { file, lines } of data.sources) {
    box.append(element("div", { class: "file", text: file }));
    for (const [text, keys, row] of lines) {
      const here = said.filter((item) => item.keys.some((key) => keys.includes(key)));
      const worst = ["error", "warning", "note"].find((level) => here.some((item) => item.severity === level));
      const sign = element("span", { class: `mark ${worst || ""}`, text: worst ? GLYPHS[worst] : "" });
      sign.title = here.map((item) => `${item.severity}: ${item.what}`).join("\n");
      const made = textLine(text, keys, element("span", { class: "number", text: row }), sign);
      if (Object.keys(data.counters).length) made.insertBefore(counters(keys), made.children[1]);
      box.append(made);
    }
  }
  return box;
}

function counters(keys) {
  const found = keys.map((key) => data.counters[key]).find(Boolean);
  const parts = [];
  if (found) {
    parts.push(`${found.instructions} i`);
    if (found.sectors !== null) parts.push(`${found.sectors} s/r`);
    if (found.conflicts) parts.push(`${found.conflicts} bc`);
  }
  const made = element("span", { class: "margin", text: parts.join(" ") });
  if (found) {
    made.title = `${found.instructions} warp instructions, ${found.bytes} bytes of global memory` +
      (found.sectors !== null ? `, ${found.sectors} sectors per request` : "") +
      (found.conflicts !== null ? `, ${found.conflicts} bank conflicts` : "") + `, ${found.divergent} divergent`;
  }
  return made;
}

function advice() {
  const box = element("div", { class: "scroll advice", id: "advice" });
  const said = [...data.findings, ...data.advice];
  if (!said.length) box.append(element("div", { class: "empty", text: "No advice: nothing stands out." }));
  for (const item of said) {
    const where = item.line === null ? data.kernel : `line ${item.line}`;
    const head = element("div", { class: `head ${item.severity}`, text: `${GLYPHS[item.severity]} ${where}: ${item.kind}` });
    const made = element("div", { class: "item" }, head, element("div", { text: item.what }),
      element("div", { class: "cure", text: item.cure }));
    box.append(tie(made, item.keys));
  }
  return box;
}

// -- IR of every pass ------------------------------------------------------------------------------------

function linesOf(index) {
  while (data.stages[index].lines === null) index -= 1;
  return data.stages[index].lines;
}

// Which lines of both texts have no partner in the other: the longest common subsequence. Numbers of unnamed
// values change with every pass and do not count.
function differences(before, after) {
  const plain = ([text]) => text.replace(/%\d+/g, "%").trim();
  const a = before.map(plain), b = after.map(plain), width = b.length + 1;
  const table = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      table[i * width + j] = a[i] === b[j] ? table[(i + 1) * width + j + 1] + 1
        : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
    }
  }
  const removed = new Set(a.keys()), added = new Set(b.keys());
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) { removed.delete(i++); added.delete(j++); }
    else if (table[(i + 1) * width + j] >= table[i * width + j + 1]) i++;
    else j++;
  }
  return [removed, added];
}

function passes() {
  const view = element("div", { class: "view", id: "ir" });
  const chosen = element("select", { id: "pass", "aria-label": "pass" });
  data.stages.forEach((stage, index) => {
    const changes = stage.lines === null ? " (no change)" : "";
    chosen.append(element("option", { value: index, text: `${index}. ${stage.name}${changes}` }));
  });
  const why = element("span", { class: "why" });
  const left = element("div", { class: "scroll", id: "before" }), right = element("div", { class: "scroll", id: "after" });
  const show = () => {
    const index = Number(chosen.value);
    why.textContent = data.stages[index].why;
    untie(left); untie(right);
    const after = linesOf(index), before = index ? linesOf(index - 1) : after;
    const [removed, added] = before === after ? [new Set(), new Set()] : differences(before, after);
    numbered(before).forEach((made, row) => { if (removed.has(row)) made.classList.add("removed"); left.append(made); });
    numbered(after).forEach((made, row) => { if (added.has(row)) made.classList.add("added"); right.append(made); });
    mark(pinned, "pin", true);
  };
  const step = (direction) => {
    let index = Number(chosen.value) + direction;
    while (data.stages[index] && data.stages[index].lines === null) index += direction;
    if (data.stages[index]) { chosen.value = index; show(); }
  };
  const earlier = element("button", { class: "step", text: "◀ earlier" });
  const later = element("button", { class: "step", text: "later ▶" });
  earlier.addEventListener("click", () => step(-1));
  later.addEventListener("click", () => step(1));
  chosen.addEventListener("change", show);
  let last = data.stages.length - 1;
  while (last && data.stages[last].lines === null) last -= 1;
  chosen.value = last;
  view.append(element("div", { class: "tools" }, earlier, chosen, later, why),
    element("div", { class: "panes" }, left, right));
  view.show = show;
  return view;
}

function listing(id, lines) {
  const box = element("div", { class: "scroll" });
  const view = element("div", { class: "view", id }, box);
  view.show = () => { if (!box.children.length) { box.append(...numbered(lines)); mark(pinned, "pin", true); } };
  return view;
}

// -- layouts ---------------------------------------------------------------------------------------------

const hue = (number, lightness) => `hsl(${(number * 137) % 360} 65% ${lightness}%)`;
const at = (index, bases) => bases.reduce((sum, base, bit) => ((index >> bit) & 1 ? sum ^ base : sum), 0);

// For each cell of the picture: its colour, its label and the text of its tip.
function cellsOf(layout) {
  const columns = layout.shape[layout.shape.length - 1];
  const coordinates = (flat) => {
    const found = [];
    for (const size of [...layout.shape].reverse()) { found.unshift(flat % size); flat = Math.floor(flat / size); }
    return `(${found.join(", ")})`;
  };
  const cells = [];
  if (layout.kind === "memory") {
    const width = Math.max(1, 128 / layout.bytes);
    for (let offset = 0; offset < 1 << layout.offset.length; offset++) {
      const flat = at(offset, layout.offset);
      const group = Math.floor(((flat % columns) * layout.bytes) / 16);
      cells.push({ x: offset % width, y: Math.floor(offset / width), colour: hue(group, 80), label: coordinates(flat),
        tip: `byte ${offset * layout.bytes}: element ${coordinates(flat)}, bank ${Math.floor((offset * layout.bytes) / 4) % 32}` });
    }
    return cells;
  }
  const holders = new Map();
  for (let warp = 0; warp < 1 << layout.warp.length; warp++) {
    for (let lane = 0; lane < 1 << layout.lane.length; lane++) {
      for (let register = 0; register < 1 << layout.register.length; register++) {
        const flat = at(register, layout.register) ^ at(lane, layout.lane) ^ at(warp, layout.warp);
        const found = holders.get(flat);
        if (found) found.copies += 1;
        else holders.set(flat, { warp, lane, register, copies: 1 });
      }
    }
  }
  const wrap = layout.shape.length === 1 ? Math.min(columns, 128) : columns;
  for (const [flat, { warp, lane, register, copies }] of holders) {
    cells.push({ x: flat % wrap, y: Math.floor(flat / wrap), colour: hue(lane, 88 - (warp % 4) * 9),
      label: `T${warp * 32 + lane}:${register}`, tip: `element ${coordinates(flat)}: warp ${warp}, lane ${lane}, register ${register}` +
        (copies > 1 ? `; ${copies} places hold it` : "") });
  }
  return cells;
}

function layoutPicture(layout) {
  const cells = cellsOf(layout);
  const columns = Math.max(...cells.map((c) => c.x)) + 1, rows = Math.max(...cells.map((c) => c.y)) + 1;
  const size = Math.max(3, Math.min(54, Math.floor(860 / columns), Math.floor(24000 / rows)));
  const height = size > 20 || rows < 4 ? 20 : size;
  const canvas = element("canvas", { width: columns * size, height: rows * height });
  const pen = canvas.getContext("2d");
  const tips = new Map();
  pen.font = "10px monospace";
  pen.textAlign = "center";
  for (const { x, y, colour, label, tip } of cells) {
    pen.fillStyle = colour;
    pen.fillRect(x * size, y * height, size, height);
    if (height > 4) { pen.strokeStyle = "#8888"; pen.strokeRect(x * size + 0.5, y * height + 0.5, size, height); }
    if (size >= 44) { pen.fillStyle = "#222"; pen.fillText(label, x * size + size / 2, y * height + 14); }
    tips.set(y * columns + x, tip);
  }
  canvas.addEventListener("mousemove", (event) => {
    const scale = canvas.width / canvas.clientWidth;
    const x = Math.floor((event.offsetX * scale) / size), y = Math.floor((event.offsetY * scale) / height);
    tipAt(event, tips.get(y * columns + x) || "");
  });
  canvas.addEventListener("mouseleave", () => tipAt(null, ""));
  const what = layout.kind === "threads" ? "Each cell is an element; colours are lanes, shades are warps."
    : "Each cell is an element in memory, a row is 128 bytes (all banks); colours are 16-byte columns of the tile.";
  return element("div", { class: "figure" },
    element("h2", { text: `${layout.shape.join(" × ")}${layout.values.length ? "  ·  " + layout.values.join(", ") : ""}` }),
    element("p", {}, element("code", { text: layout.text }), element("br"), what), canvas);
}

const tip = element("div", { id: "tip" });
function tipAt(event, text) {
  tip.style.display = text ? "block" : "none";
  tip.textContent = text;
  if (event) { tip.style.left = `${Math.min(event.clientX + 14, innerWidth - 320)}px`; tip.style.top = `${event.clientY + 14}px`; }
}

function pictures() {
  const box = element("div", { class: "scroll" });
  const view = element("div", { class: "view", id: "layouts" }, box);
  view.show = () => {
    if (box.children.length) return;
    if (!data.layouts.length) box.append(element("div", { class: "empty", text: "No value has a layout: all are scalars." }));
    box.append(...data.layouts.map(layoutPicture));
  };
  return view;
}

// -- shared memory over time ------------------------------------------------------------------------------

function sharedMemory() {
  const { areas, bytes, operations } = data.shared;
  const box = element("div", { class: "scroll" });
  const view = element("div", { class: "view", id: "shared" }, box);
  if (!areas.length) {
    box.append(element("div", { class: "empty", text: "The kernel uses no shared memory." }));
    return view;
  }
  const width = 860, height = 420, left = 70, top = 10;
  const size = { width: width + left + 20, height: height + 50 };
  const picture = drawn("svg", { ...size, viewBox: `0 0 ${size.width} ${size.height}`, role: "img", "aria-label": "shared memory over time" });
  const labels = []; // above all bars
  areas.forEach((area, number) => {
    const x = left + (area.first / operations) * width, span = ((area.last - area.first + 1) / operations) * width;
    const y = top + (area.offset / bytes) * height, tall = (area.size / bytes) * height;
    const bar = tie(drawn("rect", { class: "bar", x, y, width: Math.max(3, span), height: Math.max(2, tall), fill: hue(number, 72), rx: 2 }),
      keysOfLine(area.line));
    const text = `${area.what}: bytes ${area.offset} to ${area.offset + area.size - 1}` + (area.line ? `, line ${area.line}` : "");
    bar.append(drawn("title", {}, text));
    picture.append(bar);
    if (tall > 13) {
      const inside = span > 7 * area.what.length + 10;
      const label = drawn("text", { x: inside ? x + 5 : x - 5, y: y + Math.min(tall - 4, 14), "pointer-events": "none",
        "text-anchor": inside ? "start" : "end", style: "fill:#222;paint-order:stroke;stroke:#fffa;stroke-width:3px" }, area.what);
      labels.push(label);
    }
  });
  picture.append(...labels);
  for (let part = 0; part <= 4; part++) {
    const y = top + (part / 4) * height;
    picture.append(drawn("text", { class: "soft", x: left - 8, y: y + 4, "text-anchor": "end" }, String(Math.round((bytes * part) / 4))));
  }
  picture.append(drawn("text", { class: "soft", x: left, y: top + height + 24 }, `operations of the kernel in order, 0 to ${operations - 1} →`));
  box.append(element("div", { class: "figure" }, element("h2", { text: `Shared memory: ${bytes} bytes` }),
    element("p", { text: "Down: the place in memory, in bytes. Across: while which operations it is in use. Areas that never live at the same time share a place." }),
    picture));
  return view;
}

// -- schedules -------------------------------------------------------------------------------------------

function schedules() {
  const box = element("div", { class: "scroll" });
  const view = element("div", { class: "view", id: "schedule" }, box);
  if (!data.schedules.length) box.append(element("div", { class: "empty", text: "No loop has loads that run ahead." }));
  for (const loop of data.schedules) {
    const most = Math.max(...loop.rows.map((row) => row.ahead));
    const cell = 78, tall = 26, left = 190;
    const picture = drawn("svg", { width: left + (most + loop.steps) * cell + 20, height: loop.rows.length * tall + 40, role: "img" });
    for (let step = -most; step < loop.steps; step++) {
      picture.append(drawn("text", { class: "soft", x: left + (step + most) * cell + 4, y: 14 }, step < 0 ? "before" : `step ${step}`));
    }
    loop.rows.forEach((row, place) => {
      const y = 22 + place * tall;
      picture.append(drawn("text", { x: left - 10, y: y + 17, "text-anchor": "end" }, row.label + (row.line ? ` (${row.line})` : "")));
      for (let step = -row.ahead; step < loop.steps; step++) {
        const x = left + (step + most) * cell, number = step + row.ahead;
        picture.append(tie(drawn("rect", { class: "bar", x: x + 1, y, width: cell - 3, height: tall - 4, rx: 3, fill: hue(number + 3, 76) }), keysOfLine(row.line)));
        picture.append(drawn("text", { x: x + cell / 2, y: y + 16, "text-anchor": "middle", "pointer-events": "none", style: "fill:#222" }, `#${number}`));
      }
    });
    const chips = element("div", { class: "chips" }, ...loop.order.map((event) =>
      tie(element("span", { class: "chip", text: event.name + (event.line ? ` :${event.line}` : "") }), keysOfLine(event.line))));
    box.append(element("div", { class: "figure" }, element("h2", { text: `Loop in line ${loop.line}` }),
      element("p", { text: "Each column is a step of the loop, each box the iteration (#) that the row works on then; columns in front are done before the loop. One colour follows an iteration." }),
      picture, element("p", { text: "One step, in the order of the code:" }), chips));
  }
  return view;
}

// -- the page --------------------------------------------------------------------------------------------

function build() {
  const header = element("header", {}, element("h1", { text: data.kernel }),
    ...data.facts.map(([name, value]) => element("span", { class: "fact" }, element("b", { text: name }), value)));
  const tabs = element("nav", { role: "tablist" });
  const text = element("div", { class: "view", id: "report" }, element("div", { class: "scroll" }, element("pre", { text: data.report })));
  const views = [["IR, pass by pass", passes()], ["PTX", listing("ptx", data.ptx)],
    ...(data.sass ? [["SASS", listing("sass", data.sass)]] : []), ["Layouts", pictures()],
    ["Shared memory", sharedMemory()], ["Schedule", schedules()], ["Report", text]];
  const right = element("div", { class: "right" }, tabs, ...views.map(([, view]) => view));
  const select = (index) => {
    views.forEach(([, view], number) => {
      view.classList.toggle("shown", number === index);
      tabs.children[number].setAttribute("aria-selected", String(number === index));
    });
    views[index][1].show?.();
  };
  views.forEach(([name], index) => {
    const button = element("button", { role: "tab", text: name });
    button.addEventListener("click", () => select(index));
    tabs.append(button);
  });
  document.body.append(header, element("main", {}, element("div", { class: "left" }, source(), advice()), right), tip);
  const [, line, tab] = /^#L(\d+)?(?:-(\w+))?$/.exec(location.hash) || [];
  select(Math.max(0, views.findIndex(([, view]) => view.id === tab)));
  if (line) pin(keysOfLine(line), null);
}

build();
