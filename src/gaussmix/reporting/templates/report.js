"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const NAMESPACE = "http://www.w3.org/2000/svg"; // a name: nothing is loaded from it

  function svg(tag, attributes, text) {
    const element = document.createElementNS(NAMESPACE, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    return element;
  }

  function html(tag, text, className) {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (tag === "bdi") element.textContent = text;
    else if (text !== undefined) {
      const inside = document.createElement("bdi"); // a column's name must not turn the direction of its neighbours
      inside.textContent = text;
      element.append(inside);
    }
    return element;
  }

  // -- the privacy curve ------------------------------------------------------------------------------------------
  function moveMarker() {
    const slider = byId("delta");
    const point = data.curve[Number(slider.value)];
    byId("epsilon").textContent = point.words;
    slider.setAttribute("aria-valuetext", point.words);
    byId("marker").setAttribute("cx", point.x);
    byId("marker").setAttribute("cy", point.y);
    byId("marker-line").setAttribute("x1", point.x);
    byId("marker-line").setAttribute("x2", point.x);
  }

  // -- figures with one row a name --------------------------------------------------------------------------------
  const ROW = 28, TOP = 8, BOTTOM = 44;

  function shortened(text, width) {
    const most = Math.max(6, Math.floor(width / 7.6 + 0.01));
    const letters = Array.from(text);
    return letters.length > most ? letters.slice(0, most - 1).join("") + "…" : text;
  }

  function frame(holder, names, label, below = BOTTOM) {
    const width = Math.max(280, Math.min(holder.clientWidth || 640, 720));
    const longest = Math.max(...names.map((name) => Array.from(name).length)) * 7.6 + 14;
    const left = Math.min(longest, width * 0.36), right = width - 28;
    const height = TOP + ROW * names.length + below;
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
    names.forEach((name, i) => {
      const text = svg("text", { x: 0, y: TOP + ROW * (i + 0.5) + 4 }, shortened(name, left - 14));
      text.append(svg("title", {}, name));
      picture.append(text);
    });
    return { picture, left, right, bottom: TOP + ROW * names.length, row: (i) => TOP + ROW * (i + 0.5) };
  }

  function niceStep(span, most) {
    const power = 10 ** Math.floor(Math.log10(span / most));
    return [1, 2, 5, 10].map((m) => m * power).find((step) => span / step <= most) || 10 * power;
  }

  function tick(plot, x, label) {
    plot.picture.append(svg("line", { class: "grid", x1: x, x2: x, y1: TOP, y2: plot.bottom }));
    plot.picture.append(svg("text", { class: "tick", x, y: plot.bottom + 16, "text-anchor": "middle" }, label));
  }

  function axisName(plot, words) {
    const wide = plot.right - plot.left > 300; // else the words need the labels' room too
    const x = ((wide ? plot.left : 0) + plot.right) / 2;
    plot.picture.append(svg("text", { class: "axis", x, y: plot.bottom + 36, "text-anchor": "middle" }, words));
  }

  // -- coefficients -----------------------------------------------------------------------------------------------
  function forest(model, scale) {
    const holder = byId("forest");
    holder.replaceChildren();
    const rows = model.rows.filter((row) => row.span !== null);
    if (!rows.length) return;
    const factor = (row) => (scale === "range" ? row.span : 1);
    const known = rows.filter((row) => row.low !== null);
    const ends = known.flatMap((row) => [row.low * factor(row), row.high * factor(row)]);
    let low = Math.min(0, ...ends), high = Math.max(0, ...ends);
    if (!(high > low)) [low, high] = [-1, 1];
    const margin = 0.05 * (high - low);
    [low, high] = [low - margin, high + margin];
    const label = `Forest plot of ${model.target}: ${known.length} coefficients with intervals, ` +
      `${rows.length - known.length} not identified. The table below has the numbers.`;
    const plot = frame(holder, rows.map((row) => row.name), label, known.length ? BOTTOM : 0);
    const at = (value) => plot.left + ((value - low) / (high - low)) * (plot.right - plot.left);
    if (known.length) {
      const step = niceStep(high - low, Math.max(2, Math.floor((plot.right - plot.left) / 80)));
      for (let i = Math.ceil(low / step); i * step <= high; i++) tick(plot, at(i * step), String(Number((i * step).toPrecision(6))));
      plot.picture.append(svg("line", { class: "zero", x1: at(0), x2: at(0), y1: TOP, y2: plot.bottom }));
      axisName(plot, scale === "range" ? "lower to upper bound, units of the target" : "per unit, units of the target");
    }
    rows.forEach((row, i) => {
      const y = plot.row(i);
      if (row.low === null) {
        plot.picture.append(svg("text", { class: "unknown", x: plot.left + 4, y: y + 4 }, data.not_identified));
        return;
      }
      const f = factor(row);
      const mark = svg("g", {});
      mark.append(svg("title", {}, `${row.name}: ${row.estimate_text}, ${row.interval_text}`));
      mark.append(svg("line", { class: "interval", x1: at(row.low * f), x2: at(row.high * f), y1: y, y2: y }));
      for (const end of [row.low, row.high]) {
        mark.append(svg("line", { class: "interval", x1: at(end * f), x2: at(end * f), y1: y - 5, y2: y + 5 }));
      }
      mark.append(svg("circle", { class: "estimate", cx: at(row.estimate * f), cy: y, r: 5 }));
      plot.picture.append(mark);
    });
    holder.append(plot.picture);
  }

  function coefficientTable(model) {
    byId("coefficients-caption").replaceChildren(html("span", `${model.target} explained by the other columns`));
    byId("coefficients").tBodies[0].replaceChildren(...model.rows.map((row) => {
      const line = document.createElement("tr");
      const head = html("th", row.name);
      head.scope = "row";
      line.append(head);
      for (const text of [row.estimate_text, row.interval_text, row.range_text, row.p_text]) line.append(html("td", text, text === data.not_identified ? "number wraps" : "number"));
      line.append(html("td", row.meaning, "words"));
      return line;
    }));
  }

  function showModel() {
    const model = data.models[Number(byId("target").value)];
    const scale = document.querySelector('input[name="scale"]:checked').value;
    if (byId("model-words").textContent !== model.words) byId("model-words").textContent = model.words;
    forest(model, scale);
    coefficientTable(model);
  }

  // -- noise against signal ---------------------------------------------------------------------------------------
  function showSignals() {
    const holder = byId("signals");
    holder.replaceChildren();
    if (!data.signals.every((row) => row.noise > 0)) return;
    const values = data.signals.map((row) => row.signal / row.noise).filter((value) => value > 0);
    const low = Math.log10(Math.min(1, ...values)) - 0.3, high = Math.log10(Math.max(1, ...values)) + 0.7;
    const plot = frame(holder, data.signals.map((row) => row.name), "Signal of each encoded column against the noise; the table below has the numbers.");
    const at = (value) => plot.left + ((Math.log10(value) - low) / (high - low)) * (plot.right - plot.left);
    const every = Math.max(1, Math.ceil(((high - low) * 64) / (plot.right - plot.left)));
    for (let power = Math.ceil(low); power <= high; power += every) {
      tick(plot, at(10 ** power), power >= 0 && power < 6 ? String(10 ** power) : `1e${power}`);
    }
    axisName(plot, "signal over noise, logarithmic; dashed: noise");
    data.signals.forEach((row, i) => {
      const y = plot.row(i);
      const ratio = row.signal / row.noise;
      if (!(ratio > 1)) {
        plot.picture.append(svg("text", { class: "unknown", x: at(1) + 6, y: y + 4 }, "below the noise"));
        return;
      }
      const bar = svg("rect", { class: "signal", x: at(1), y: y - 7, width: at(ratio) - at(1), height: 14 });
      bar.append(svg("title", {}, `${row.name}: ${row.signal_text}, noise ${row.noise_text}`));
      plot.picture.append(bar, svg("text", { class: "tick", x: at(ratio) + 5, y: y + 4 }, `${row.ratio_text}×`));
    });
    plot.picture.append(svg("line", { class: "zero", x1: at(1), x2: at(1), y1: TOP, y2: plot.bottom }));
    holder.append(plot.picture);
  }

  // -- start ------------------------------------------------------------------------------------------------------
  function showAll() {
    if (byId("target")) showModel();
    if (byId("signals")) showSignals();
  }

  if (byId("delta")) {
    byId("delta").addEventListener("input", moveMarker);
    moveMarker();
  }
  if (byId("target")) {
    byId("target").addEventListener("change", showModel);
    for (const radio of document.querySelectorAll('input[name="scale"]')) radio.addEventListener("change", showModel);
  }
  let waiting = false, drawnAt = document.body.clientWidth;
  window.addEventListener("resize", () => {
    if (waiting || document.body.clientWidth === drawnAt) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      drawnAt = document.body.clientWidth;
      showAll();
    });
  });
  showAll();
})();
