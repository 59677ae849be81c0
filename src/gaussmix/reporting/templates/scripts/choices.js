// The reader's choices: target, columns, levels, what intervals are for. Every change calls `changed`.
const Choices = (() => {
  const { byId, isolated, make, option } = Elements;

  // Columns with two values can be explained on the scale of odds; numbers, true and false as they are.
  const explained = (release) => {
    const numbers = new Set(Releases.targets(release));
    return release.parts.filter((own) => numbers.has(own) || (Releases.isClass(own) && !own.marked));
  };

  function build(release, start, { alpha, rows }, changed) {
    const state = {
      target: start.target, on: new Set(start.on), scale: "linear", estimand: "table", alpha, rows,
      names: new Map(), reference: new Map(), // per category: what each level is taken as, and what is left out
    };
    for (const own of release.parts) {
      if (own.kind === "categorical") state.names.set(own.name, own.labels.slice());
    }
    applyMerges(release, state, start.merge);
    const redraw = () => {
      drawColumns(release, state, redrawn);
      drawLevels(release, state, redrawn);
      drawScale(release, state);
    };
    const redrawn = () => { redraw(); changed(); };
    drawTarget(release, state, redrawn);
    drawIntervals(release, state, changed);
    byId("all-columns").addEventListener("click", () => {
      for (const own of Releases.explaining(release, state.target)) state.on.add(own.name);
      redrawn();
    });
    byId("no-columns").addEventListener("click", () => { state.on.clear(); redrawn(); });
    byId("merge-rare").hidden = !Object.keys(release.proposed).length;
    byId("merge-rare").addEventListener("click", () => { applyMerges(release, state, release.proposed); redrawn(); });
    redraw();
    return { state, redraw: redrawn };
  }

  function applyMerges(release, state, merges) {
    for (const [name, groups] of Object.entries(merges)) {
      const own = release.part.get(name), names = own.labels.slice();
      for (const [label, members] of Object.entries(groups)) {
        for (const member of members) names[own.labels.indexOf(member)] = label;
      }
      state.names.set(name, names);
    }
  }

  function drawTarget(release, state, changed) {
    const select = byId("target");
    select.replaceChildren(...explained(release).map((own) => option(own.name)));
    select.value = state.target;
    select.addEventListener("change", () => {
      state.target = select.value;
      state.on = new Set(Releases.explaining(release, state.target).map((own) => own.name));
      changed();
    });
    byId("scale").addEventListener("change", () => { state.scale = byId("scale").value; changed(); });
  }

  function drawScale(release, state) {
    const own = release.part.get(state.target), isNumber = own.kind !== "categorical";
    const found = [];
    if (isNumber) found.push(option("linear", own.kind === "boolean" ? "differences in its share" : "differences in its mean"));
    if (Releases.isClass(own)) found.push(option("odds", "odds ratios"));
    byId("scale").replaceChildren(...found);
    if (!found.some((choice) => choice.value === state.scale)) state.scale = found[0].value;
    byId("scale").value = state.scale;
    byId("scale").disabled = found.length < 2;
  }

  function drawColumns(release, state, changed) {
    const focused = document.activeElement && document.activeElement.value;
    const inside = byId("columns").contains(document.activeElement);
    const possible = Releases.explaining(release, state.target).filter((own) => own.kind !== "missing");
    state.on = new Set(possible.map((own) => own.name).filter((name) => state.on.has(name)));
    const brought = new Set(Coding.withNeeds(release, [...state.on]).map((own) => own.name));
    byId("columns").replaceChildren(...possible.map((own) => {
      const box = make("input", { type: "checkbox", value: own.name, checked: brought.has(own.name) });
      box.disabled = brought.has(own.name) && !state.on.has(own.name); // a term of the model needs it
      box.addEventListener("change", () => {
        if (box.checked) state.on.add(own.name);
        else state.on.delete(own.name);
        changed();
      });
      return make("label", {}, box, " ", isolated(own.name));
    }));
    if (inside) [...byId("columns").querySelectorAll("input")].find((box) => box.value === focused)?.focus();
  }

  // One block a category: what each level is taken as, and the level that the others are measured from.
  function drawLevels(release, state, changed) {
    const opened = new Set([...byId("levels").querySelectorAll("details[open]")].map((one) => one.dataset.name));
    const shown = Coding.withNeeds(release, [...state.on]).filter((own) => own.kind === "categorical");
    const focused = document.activeElement && document.activeElement.id;
    byId("levels").replaceChildren(...shown.map((own, place) => {
      const names = state.names.get(own.name), labels = [...new Set(names)];
      if (!labels.includes(state.reference.get(own.name))) state.reference.delete(own.name);
      const select = make("select", { id: `reference-${place}` }, ...labels.map((label) => option(label)));
      select.value = state.reference.get(own.name) || labels[0];
      select.addEventListener("change", () => { state.reference.set(own.name, select.value); changed(); });
      const inputs = own.labels.map((label, i) => {
        const input = make("input", { type: "text", value: names[i], id: `level-${place}-${i}` });
        input.addEventListener("change", () => { names[i] = input.value.trim() || label; changed(); });
        return make("label", { htmlFor: input.id }, isolated(label), input);
      });
      const summary = make("summary", {}, isolated(own.name), ": ", make("span", { className: "note" },
        `${labels.length} levels, from `, isolated(select.value)));
      const first = make("label", { htmlFor: select.id }, "measured from", select);
      const block = make("details", { open: opened.has(own.name) }, summary,
        ...(release.intercept === null ? [] : [make("div", { className: "control" }, first)]),
        make("p", { className: "note" }, "Levels that are taken as the same word are merged."),
        make("div", { className: "levels" }, ...inputs));
      block.dataset.name = own.name;
      return block;
    }));
    byId("levels-box").hidden = !shown.length;
    if (focused && byId("levels").querySelector(`#${CSS.escape(focused)}`)) byId(focused).focus();
  }

  function drawIntervals(release, state, changed) {
    const possible = !release.weighted && release.noisy.independent &&
      (state.rows !== null || (release.rows !== null && release.rows.rows >= 2 * release.rows.deviation));
    byId("estimand").replaceChildren(
      option("table", "this table"), ...(possible ? [option("population", "the population behind it")] : []),
    );
    byId("estimand").disabled = !possible;
    byId("estimand").addEventListener("change", () => { state.estimand = byId("estimand").value; changed(); });
    const levels = [...new Set([0.1, 0.05, 0.01, state.alpha])].sort((a, b) => b - a);
    byId("level").replaceChildren(...levels.map((alpha) => option(String(alpha), Elements.percent(1 - alpha))));
    byId("level").value = String(state.alpha);
    byId("level").addEventListener("change", () => { state.alpha = Number(byId("level").value); changed(); });
  }

  // What a state asks for, as Models.regress takes it; merges and references of the model's own categories alone.
  function asked(release, state) {
    const merge = Object.create(null), reference = Object.create(null); // any name may be a key
    for (const own of Coding.withNeeds(release, [...state.on])) {
      if (own.kind !== "categorical") continue;
      const groups = new Map(), names = state.names.get(own.name);
      own.labels.forEach((label, i) => groups.set(names[i], [...(groups.get(names[i]) || []), label]));
      const changed = [...groups].filter(([name, members]) => members.length > 1 || members[0] !== name);
      if (changed.length) merge[own.name] = Object.fromEntries(changed);
      if (state.reference.has(own.name)) reference[own.name] = state.reference.get(own.name);
    }
    const { target, scale, estimand, alpha, rows } = state;
    const on = release.parts.map((own) => own.name).filter((name) => state.on.has(name));
    return { target, on, merge, reference, scale, estimand, alpha, rows };
  }

  return { asked, build, explained };
})();
