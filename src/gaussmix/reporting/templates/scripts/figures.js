// Figures: the privacy curve's marker, coefficients with intervals, noise against signal.
const Figures = (() => {
  const { byId, svg } = Elements;
  const ROW = 28, TOP = 8, BOTTOM = 44;

  function moveMarker(curve) {
    const slider = byId("delta"), point = curve[Number(slider.value)];
    byId("epsilon").textContent = point.words;
    slider.setAttribute("aria-valuetext", point.words);
    byId("marker").setAttribute("cx", point.x);
    byId("marker").setAttribute("cy", point.y);
    byId("marker-line").setAttribute("x1", point.x);
    byId("marker-line").setAttribute("x2", point.x);
  }

  function shortened(text, width) {
    const most = Math.max(6, Math.floor(width / 7.6 + 0.01)), letters = Array.from(text);
    return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : text;
  }

  // A picture with one row a name.
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

  // Intervals of coefficients: rows of { name, estimate, low, high, identified, text }.
  function forest(holder, rows, { label, axis, unknown }) {
    holder.replaceChildren();
    if (!rows.length) return;
    const known = rows.filter((row) => row.identified);
    let low = Math.min(0, ...known.map((row) => row.low)), high = Math.max(0, ...known.map((row) => row.high));
    if (!(high > low)) [low, high] = [-1, 1];
    const margin = 0.05 * (high - low);
    [low, high] = [low - margin, high + margin];
    const plot = frame(holder, rows.map((row) => row.name), label, known.length ? BOTTOM : 0);
    const at = (value) => plot.left + ((value - low) / (high - low)) * (plot.right - plot.left);
    if (known.length) {
      const step = niceStep(high - low, Math.max(3, Math.floor((plot.right - plot.left) / 80)));
      for (let i = Math.ceil(low / step); i * step <= high; i++) tick(plot, at(i * step), String(Number((i * step).toPrecision(6))));
      plot.picture.append(svg("line", { class: "zero", x1: at(0), x2: at(0), y1: TOP, y2: plot.bottom }));
      axisName(plot, axis);
    }
    rows.forEach((row, i) => {
      const y = plot.row(i);
      if (!row.identified) {
        plot.picture.append(svg("text", { class: "unknown", x: plot.left + 4, y: y + 4 }, unknown));
        return;
      }
      const mark = svg("g", {});
      mark.append(svg("title", {}, row.text));
      mark.append(svg("line", { class: "interval", x1: at(row.low), x2: at(row.high), y1: y, y2: y }));
      for (const end of [row.low, row.high]) {
        mark.append(svg("line", { class: "interval", x1: at(end), x2: at(end), y1: y - 5, y2: y + 5 }));
      }
      mark.append(svg("circle", { class: "estimate", cx: at(row.estimate), cy: y, r: 5 }));
      plot.picture.append(mark);
    });
    holder.append(plot.picture);
  }

  function signals(holder, rows) {
    holder.replaceChildren();
    if (!rows.every((row) => row.noise > 0)) return;
    const values = rows.map((row) => row.signal / row.noise).filter((value) => value > 0);
    const low = Math.log10(Math.min(1, ...values)) - 0.3, high = Math.log10(Math.max(1, ...values)) + 0.7;
    const label = "Signal of each encoded column against the noise; the table below has the numbers.";
    const plot = frame(holder, rows.map((row) => row.name), label);
    const at = (value) => plot.left + ((Math.log10(value) - low) / (high - low)) * (plot.right - plot.left);
    const every = Math.max(1, Math.ceil(((high - low) * 64) / (plot.right - plot.left)));
    for (let power = Math.ceil(low); power <= high; power += every) {
      tick(plot, at(10 ** power), power >= 0 && power < 6 ? String(10 ** power) : `1e${power}`);
    }
    axisName(plot, "signal over noise, logarithmic; dashed: noise");
    rows.forEach((row, i) => {
      const y = plot.row(i), ratio = row.signal / row.noise;
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

  return { forest, moveMarker, signals };
})();
