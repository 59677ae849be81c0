// The reader's choices: response, predictors, levels, estimand. Every change calls `changed`.
function buildChoices(release, { response, predictors, alpha }, changed) {
  const state = {
    response, predictors: new Set(), scale: null, rows: null, alpha,
    levels: new Map(), // per category: the name of each level; levels with the same name are collapsed into one
    reference: new Map(),
  };
  const isClass = (own) => own.kind === "categorical", chosen = () => withNeeds(release, [...state.predictors]);
  for (const own of release.parts.filter(isClass)) state.levels.set(own.name, own.labels.slice());
  const boxes = predictorBoxes(release, state, redraw), blocks = levelBlocks(release, state, redraw);
  const possible = () => (
    state.response === null ? [] : predictorsFor(release, state.response).filter((own) => boxes.has(own.name))
  );
  const all = () => { state.predictors = new Set(possible().map((own) => own.name)); };
  const on = (id, event, act) => byId(id).addEventListener(event, () => { act(byId(id).value); redraw(); });

  function redraw() {
    const brought = new Set(chosen().map((own) => own.name));
    for (const { name } of possible()) {
      boxes.get(name).box.checked = brought.has(name);
      boxes.get(name).box.disabled = brought.has(name) && !state.predictors.has(name); // a term of the model needs it
    }
    place(byId("predictors"), possible().map((own) => boxes.get(own.name).label));
    const shown = chosen().filter(isClass).map((own) => blocks.get(own.name));
    for (const { draw } of shown) draw();
    place(byId("levels"), shown.map(({ block }) => block));
    byId("levels-box").hidden = !shown.length;
    drawScale(release, state);
    changed();
  }

  byId("response").replaceChildren(...release.parts.filter((own) => own.responses).map((own) => option(own.name)));
  if (response === null) {
    byId("response").prepend(make("option", { value: "", textContent: "(choose a response)", disabled: true }));
  }
  byId("response").value = response ?? "";
  on("response", "change", (value) => { Object.assign(state, { response: value, scale: null }); all(); });
  on("scale", "change", (value) => { state.scale = value; });
  on("all-predictors", "click", all);
  on("no-predictors", "click", () => state.predictors.clear());
  const estimands = [option("table", "this table"), option("population", "the population")];
  byId("estimand").replaceChildren(...estimands.slice(0, release.sample_rows === null ? 1 : 2));
  byId("estimand").disabled = release.sample_rows === null;
  on("estimand", "change", (value) => { state.rows = value === "population" ? release.sample_rows : null; });
  const alphas = [...new Set([0.1, 0.05, 0.01, alpha])].sort((a, b) => b - a);
  byId("level").replaceChildren(...alphas.map((value) => option(String(value), percent(1 - value))));
  byId("level").value = String(alpha);
  on("level", "change", (value) => { state.alpha = Number(value); });
  all();
  if (predictors) state.predictors = new Set(possible().map((own) => own.name).filter((name) => predictors.includes(name)));
  return { state, redraw };
}

// Replace the children of a box only if they changed, so that the focused element keeps the focus.
function place(box, children) {
  if (children.length !== box.children.length || children.some((child, i) => child !== box.children[i])) {
    box.replaceChildren(...children);
  }
}

const SCALES = { linear: "differences in its mean", logit: "odds ratios", poisson: "rate ratios" };

function drawScale(release, state) {
  const scales = state.response === null ? [] : Object.keys(release.part.get(state.response).responses);
  if (!scales.includes(state.scale)) [state.scale] = scales;
  byId("scale").replaceChildren(...scales.map((scale) => option(scale, SCALES[scale])));
  byId("scale").value = state.scale;
  byId("scale").disabled = scales.length < 2;
}

function predictorBoxes(release, state, redraw) {
  return new Map(release.parts.filter((own) => own.kind !== "missing").map(({ name }) => {
    const box = make("input", { type: "checkbox", value: name });
    box.addEventListener("change", () => { state.predictors[box.checked ? "add" : "delete"](name); redraw(); });
    return [name, { label: make("label", {}, box, " ", isolated(name)), box }];
  }));
}

// One block for each category: its reference level and the names of its levels.
function levelBlocks(release, state, redraw) {
  return new Map(release.parts.filter((own) => own.kind === "categorical").map((part, number) => {
    const { name, labels } = part;
    const names = state.levels.get(name), words = make("span", { className: "note" });
    const select = make("select", { id: `reference-${number}` });
    select.addEventListener("change", () => { state.reference.set(name, select.value); redraw(); });
    const inputs = labels.map((label, i) => {
      const input = make("input", { type: "text", id: `level-${number}-${i}` });
      input.addEventListener("change", () => { names[i] = input.value.trim() || label; redraw(); });
      return input;
    });
    const block = make("details", { ariaLabel: `Levels of ${name}` }, make("summary", {}, isolated(name), ": ", words),
      make("div", { className: "control", hidden: release.intercept === null },
        make("label", { htmlFor: select.id }, "Reference level"), select),
      make("p", { className: "note" }, "Levels with the same name are collapsed into one."),
      make("div", { className: "levels" }, ...inputs.map((input, i) => (
        make("label", { htmlFor: input.id }, isolated(labels[i]), input)
      ))));
    block.dataset.name = name;
    const draw = () => {
      const merged = [...new Set(names)];
      if (!merged.includes(state.reference.get(name))) state.reference.delete(name);
      select.replaceChildren(...merged.map((label) => option(label)));
      const parts = withNeeds(release, [...state.predictors]);
      select.value = state.reference.get(name) ?? defaultReference(release, parts, part, names);
      inputs.forEach((input, i) => { input.value = names[i]; });
      words.replaceChildren(`${merged.length} levels, reference `, isolated(select.value));
    };
    return [name, { block, draw }];
  }));
}
