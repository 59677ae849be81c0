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
      target: start, on: new Set(Releases.explaining(release, start).map((own) => own.name)), scale: "linear", estimand: "table", alpha, rows,
      names: new Map(), reference: new Map(), // per category: what each level is taken as, and what is left out
    };
    for (const own of release.parts) {
      if (own.kind === "categorical") state.names.set(own.name, own.labels.slice());
    }
    const redraw = () => {
      drawColumns(release, state, boxes);
      drawLevels(release, state, blocks);
      drawScale(release, state);
    };
    const redrawn = () => { redraw(); changed(); };
    const boxes = columnBoxes(release, state, redrawn), blocks = levelBlocks(release, state, redrawn);
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
      state.scale = "linear";
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

  // Children of a box, replaced only where they are others than before: what has the focus keeps it.
  function place(box, children) {
    if (children.length !== box.children.length || children.some((child, i) => child !== box.children[i])) {
      box.replaceChildren(...children);
    }
  }

  function columnBoxes(release, state, changed) {
    return new Map(release.parts.filter((own) => own.kind !== "missing").map((own) => {
      const box = make("input", { type: "checkbox", value: own.name });
      box.addEventListener("change", () => {
        if (box.checked) state.on.add(own.name);
        else state.on.delete(own.name);
        changed();
      });
      return [own.name, { label: make("label", {}, box, " ", isolated(own.name)), box }];
    }));
  }

  function drawColumns(release, state, boxes) {
    const possible = Releases.explaining(release, state.target).filter((own) => boxes.has(own.name));
    state.on = new Set(possible.map((own) => own.name).filter((name) => state.on.has(name)));
    const brought = new Set(Coding.withNeeds(release, [...state.on]).map((own) => own.name));
    for (const { name } of possible) {
      const { box } = boxes.get(name);
      box.checked = brought.has(name);
      box.disabled = brought.has(name) && !state.on.has(name); // a term of the model needs it
    }
    place(byId("columns"), possible.map((own) => boxes.get(own.name).label));
  }

  // One block a category: what each level is taken as, and the level that the others are measured from.
  function levelBlocks(release, state, changed) {
    return new Map(release.parts.filter((own) => own.kind === "categorical").map((own, number) => {
      const names = () => state.names.get(own.name);
      const select = make("select", { id: `reference-${number}` });
      select.addEventListener("change", () => { state.reference.set(own.name, select.value); changed(); });
      const inputs = own.labels.map((label, i) => {
        const input = make("input", { type: "text", id: `level-${number}-${i}` });
        input.addEventListener("change", () => { names()[i] = input.value.trim() || label; changed(); });
        return input;
      });
      const words = make("span", { className: "note" });
      const block = make("details", {}, make("summary", {}, isolated(own.name), ": ", words),
        ...(release.intercept === null ? []
          : [make("div", { className: "control" }, make("label", { htmlFor: select.id }, "measured from"), select)]),
        make("p", { className: "note" }, "Levels that are taken as the same word are merged."),
        make("div", { className: "levels" }, ...inputs.map((input, i) => (
          make("label", { htmlFor: input.id }, isolated(own.labels[i]), input)
        ))));
      block.dataset.name = own.name;
      block.ariaLabel = `Levels of ${own.name}`;
      const draw = () => {
        const labels = [...new Set(names())];
        if (!labels.includes(state.reference.get(own.name))) state.reference.delete(own.name);
        select.replaceChildren(...labels.map((label) => option(label)));
        select.value = state.reference.has(own.name) ? state.reference.get(own.name) : labels[0];
        inputs.forEach((input, i) => { input.value = names()[i]; });
        words.replaceChildren(`${labels.length} levels, from `, isolated(select.value));
      };
      return [own.name, { block, draw }];
    }));
  }

  function drawLevels(release, state, blocks) {
    const shown = Coding.withNeeds(release, [...state.on]).filter((own) => blocks.has(own.name));
    for (const own of shown) blocks.get(own.name).draw();
    place(byId("levels"), shown.map((own) => blocks.get(own.name).block));
    byId("levels-box").hidden = !shown.length;
  }

  function drawIntervals(release, state, changed) {
    const possible = !release.weighted && release.noisy.independent &&
      (state.rows !== null || release.sample_rows !== null);
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
