// A row that the reader types in, and what the model says of it.
const Predictions = (() => {
  const { byId, digits, isolated, make, option, percent, range, say } = Elements;
  const DAY = 86400000, NONE_OF_THESE = "(none of these)";

  const asDate = (own, days) => new Date(Date.parse(own.origin) + Math.round(days) * DAY).toISOString().slice(0, 10);

  function build(release, model, typed, changed) {
    const possible = Models.canPredict(release, model);
    byId("prediction-form").hidden = !possible;
    byId("no-prediction").hidden = possible;
    if (!possible) return;
    const used = new Set(model.summary.problem.features.map((own) => own.source));
    const parts = release.parts.filter((own) => used.has(own.name));
    const key = JSON.stringify(parts.map((own) => own.name));
    if (byId("typed").dataset.parts === key) return; // what is being typed stays
    byId("typed").dataset.parts = key;
    byId("typed").replaceChildren(...parts.map((own, i) => {
      const input = field(release, own, typed);
      input.id = `typed-${i}`;
      input.addEventListener("input", () => { read(own, input, typed); changed(); });
      const words = own.kind === "numeric" && !own.origin ? make("span", { className: "note" }, `${own.lower} to ${own.upper}`) : "";
      return make("label", { htmlFor: input.id }, isolated(own.name), input, words);
    }));
  }

  function field(release, own, typed) {
    if (own.kind === "numeric") {
      if (!typed.has(own.name)) typed.set(own.name, own.typical);
      const value = typed.get(own.name);
      return own.origin
        ? make("input", { type: "date", value: asDate(own, value), min: asDate(own, own.lower), max: asDate(own, own.upper) })
        : make("input", { type: "number", step: "any", value: String(value) });
    }
    const labels = own.kind === "boolean" ? ["false", "true"] : [...own.labels, ...(own.unknown === "zero" ? [NONE_OF_THESE] : [])];
    if (!typed.has(own.name)) typed.set(own.name, own.kind === "boolean" ? false : labels[0]);
    const select = make("select", {}, ...labels.map((label) => option(label)));
    select.value = String(typed.get(own.name));
    return select;
  }

  function read(own, input, typed) {
    if (own.kind === "boolean") typed.set(own.name, input.value === "true");
    else if (own.kind === "categorical") typed.set(own.name, input.value);
    else if (own.origin) typed.set(own.name, (Date.parse(input.value) - Date.parse(own.origin)) / DAY);
    else typed.set(own.name, input.value.trim() === "" ? NaN : Number(input.value));
  }

  function show(release, model, typed) {
    if (!Models.canPredict(release, model)) return;
    const values = Object.fromEntries(typed), found = Models.predict(release, model, values);
    const { origin } = release.part.get(model.target), days = origin ? ` days since ${origin}` : "";
    const number = found.probability === undefined ? found.mean : found.probability;
    if (Number.isNaN(number)) {
      say("prediction", "Fill in every number.");
    } else if (found.probability !== undefined) {
      say("prediction", `Probability that ${model.response}: ${digits(found.probability, 3)}.`);
    } else if (!found.interval.every(Number.isFinite)) {
      say("prediction", `The mean of ${model.target} for such rows is not identified at this budget.`);
    } else {
      say("prediction", `Mean of ${model.target} for such rows: ${digits(found.mean)}${days}, ` +
        `${percent(1 - model.alpha)} interval ${range(found.interval)}.`);
    }
  }

  return { build, show };
})();
