// Reads what is embedded, and puts the page together.
const { byId } = Elements;
const data = JSON.parse(byId("data").textContent);
const release = data.release === null ? null : Releases.read(data.release);

const typed = new Map(); // values of the row that is typed in, by column
let model = null, choices = null;

function compute() {
  const asked = Choices.asked(release, choices.state);
  try {
    const many = Coding.of(release, asked.on, asked).features.length;
    if (many > Coefficients.MOST) throw new Error(`${many} coefficients are more than a page computes: choose fewer columns, or use gaussmix regress.`);
    model = { ...Models.regress(release, asked), asked };
  } catch (error) {
    model = null;
    byId("prediction-box").hidden = true;
    Coefficients.showError(error.message);
    return;
  }
  byId("prediction-box").hidden = false;
  Coefficients.show(release, model, data.not_identified);
  Predictions.build(release, model, typed, () => Predictions.show(release, model, typed));
  Predictions.show(release, model, typed);
}

// Leave out the columns of coefficients that are not identified, and what needs them.
function dropUnidentified() {
  const unknown = new Set(model.coefficients.filter((row) => !row.identified && row.source !== null).map((row) => row.source));
  for (const name of [...choices.state.on]) {
    if (unknown.has(name) || release.part.get(name).needs.some((other) => unknown.has(other))) choices.state.on.delete(name);
  }
  choices.redraw();
  byId("model-words").focus(); // the button is gone
}

if (byId("delta")) {
  byId("delta").addEventListener("input", () => Figures.moveMarker(data.curve));
  Figures.moveMarker(data.curve);
}
if (byId("target")) {
  choices = Choices.build(release, data.response, data, compute);
  for (const radio of document.querySelectorAll('input[name="scale"]')) {
    radio.addEventListener("change", () => { if (model) Coefficients.show(release, model, data.not_identified); });
  }
  for (const id of ["choices", "prediction-form"]) byId(id).addEventListener("submit", (event) => event.preventDefault());
  byId("save-coefficients").addEventListener("click", () => { if (model) Coefficients.saveFile(model); });
  byId("drop-unidentified").addEventListener("click", dropUnidentified);
  compute();
}
byId("save-label").addEventListener("click", () => {
  const label = new XMLSerializer().serializeToString(document.querySelector("svg.label"));
  Elements.save("privacy-label.svg", "image/svg+xml", label);
});

function showFigures() {
  if (model) Coefficients.show(release, model, data.not_identified);
  if (byId("signals")) Figures.signals(byId("signals"), data.signals);
}
let waiting = false, drawnAt = document.body.clientWidth;
window.addEventListener("resize", () => {
  if (waiting || document.body.clientWidth === drawnAt) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    drawnAt = document.body.clientWidth;
    showFigures();
  });
});
if (byId("signals")) Figures.signals(byId("signals"), data.signals);

// The same functions for whoever works in the browser's console.
window.gaussmix = Object.freeze({
  release,
  regress: (asked) => Models.regress(release, asked),
  predict: (found, values) => Models.predict(release, found, values),
});
