// Reads the embedded data and sets up the page.
const data = JSON.parse(byId("data").textContent), release = data.release === null ? null : readRelease(data.release);
const typed = new Map(); // values of the row to predict, by column
let model = null, choices = null;

function compute() {
  const { predictors: chosen, ...rest } = choices.state, names = release.parts.map((own) => own.name);
  const asked = { ...rest, predictors: names.filter((name) => chosen.has(name)) };
  model = null;
  byId("model-results").hidden = byId("prediction-box").hidden = true;
  if (asked.response === null) return;
  try {
    const many = featuresOf(release, asked.predictors, asked.levels, asked.reference).features.length;
    if (many > MOST) throw new Error(`Choose fewer predictors: a page computes at most ${MOST} coefficients, got ${many}.`);
    model = regress(release, asked);
    say("model-error", "");
  } catch (error) {
    say("model-error", error.message);
  }
  byId("model-results").hidden = byId("prediction-box").hidden = model === null;
  if (model === null) return;
  showModel(release, model, data.not_identified);
  say("python", inPython(release, asked, data.rows));
  const possible = canPredict(release, model), predicted = () => showPrediction(release, model, typed);
  byId("prediction-form").hidden = !possible;
  byId("no-prediction").hidden = possible;
  if (possible) {
    buildFields(release, model, typed, predicted);
    predicted();
  }
}

// Remove the predictors of coefficients that are not identified, and the terms that need them.
function dropUnidentified() {
  const unknown = new Set(model.coefficients.filter((row) => !row.identified).map((row) => row.source));
  for (const name of [...choices.state.predictors]) {
    if ([name, ...release.part.get(name).needs].some((own) => unknown.has(own))) choices.state.predictors.delete(name);
  }
  choices.redraw();
  byId("model-words").focus(); // the button is now hidden
}

function moveMarker() {
  const { words, x, y } = data.curve[Number(byId("delta").value)];
  byId("epsilon").textContent = words;
  byId("delta").setAttribute("aria-valuetext", words);
  const moves = [["marker", "cx", x], ["marker", "cy", y], ["marker-line", "x1", x], ["marker-line", "x2", x]];
  for (const [id, name, value] of moves) byId(id).setAttribute(name, value);
}

if (byId("delta")) {
  byId("delta").addEventListener("input", moveMarker);
  moveMarker();
}
if (byId("response")) {
  choices = buildChoices(release, data, compute);
  choices.redraw();
  for (const id of ["choices", "prediction-form"]) byId(id).addEventListener("submit", (event) => event.preventDefault());
  byId("save-coefficients").addEventListener("click", () => saveCoefficients(model));
  byId("drop-unidentified").addEventListener("click", dropUnidentified);
  window.addEventListener("resize", () => { if (model) drawForest(release, model, data.not_identified); });
}
byId("save-label").addEventListener("click", () => {
  save("privacy-label.svg", "image/svg+xml", new XMLSerializer().serializeToString(document.querySelector("svg.label")));
});

// The same functions for the browser console.
const mapOf = (values = {}) => new Map(Object.entries(values));
window.gaussmix = Object.freeze({
  release,
  regress: ({ scale = "linear", alpha = 0.05, rows = null, levels, reference, ...asked }) => (
    regress(release, { ...asked, scale, alpha, rows, levels: mapOf(levels), reference: mapOf(reference) })
  ),
  predict: (found, values) => predict(release, found, mapOf(values)),
});
