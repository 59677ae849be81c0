// Display of a model: description, figure, table, the equivalent Python call and a CSV file; and the prediction form.
const MOST = 200; // maximum number of coefficients
const APPROXIMATE = "Approximate maximum likelihood, because the model was not declared before the release: " +
  "intervals can miss the coefficients if predictors are related nonlinearly.";
const MOST_RATIO = 1e6; // larger odds and rate ratios, and smaller ones than its inverse, are not printed

// The interpretation of a coefficient, and the range of its predictor: the declared bounds, or thresholds of top-coding.
function meaning(release, { problem }, { source }) {
  if (source === null) return { words: "where predictors are 0 or at their reference levels", span: null };
  const { kind, lower, upper, origin } = release.part.get(source), from = problem.references.get(source);
  if (kind === "boolean") return { words: "true versus false", span: 1 };
  if (kind === "categorical") return { words: from ? `versus ${from}` : "of this level", span: 1 };
  if (kind === "missing") return { words: "missing versus the middle of its bounds", span: null };
  if (kind !== "numeric") return { words: "per unit", span: null };
  const since = origin ? ` days since ${origin}` : "", short = (end) => String(Number(end.toPrecision(6)));
  return { words: `per ${origin ? "day" : "unit"}, ${short(lower)} to ${short(upper)}${since}`, span: upper - lower };
}

function showModel(release, model, notIdentified) {
  const { coefficients, summary, scale, name } = model, ratio = FAMILIES[scale]?.ratio;
  const lost = coefficients.filter((row) => !row.identified), unknown = lost.length, known = coefficients.length - unknown;
  const words = ratio && coefficients.some(({ assumed }) => assumed > 0) ? [APPROXIMATE] : [];
  if (release.estimated_on) words.push(release.estimated_on);
  if (summary.dominated && known > 1) words.push("At this budget, this model predicts no better than the mean of the response.");
  words.push(`${known} of ${coefficients.length} coefficients are identified at this budget.`);
  if (unknown) words.push("The others are left out; the model contains only the identified columns.");
  if (ratio) words.push(...aboutLikelihood(release, model));
  else if (summary.dominated) words.push("R² is not estimable: it is dominated by noise.");
  else words.push(`R² is about ${summary.rsquared.toFixed(3)}.`);
  if (release.allowance) words.push(release.allowance);
  if (model.rows !== null) words.push(`Sampling error is for ${Math.round(model.rows).toLocaleString("en-GB")} rows.`);
  if (release.weighted) words.push("Rows are weighted.");
  say("model-words", words.join(" "));
  byId("drop-unidentified").hidden = !unknown;
  byId("left-out").replaceChildren(...lost.map(({ name: own, reason }) => make("li", {}, isolated(own), `: ${reason}.`)),
    ...coefficients.filter((row) => row.standsFor.length).map((row) => (
      make("li", {}, "† ", isolated(row.name), " also absorbs the effect of ", isolated(row.standsFor.join(", ")), ", left out.")
    )));
  const predictors = [...new Set(coefficients.map((row) => row.source).filter((source) => source !== null))];
  byId("coefficients-caption").replaceChildren(isolated(`${name} on ${predictors.join(", ") || "a constant"}`));
  const level = `${percent(1 - model.alpha)} interval`;
  const head = ratio ? ["Coefficient", capital(ratio), level, "Logarithm", "Std. error", "p", "Meaning"]
    : ["Coefficient", "Per unit", level, "Std. error", "Across the range", "p", "Meaning"];
  const className = (i) => (i === 0 ? "" : i < 6 ? "number" : "words");
  byId("coefficients").tHead.replaceChildren(make("tr", {}, ...head.map((text, i) => (
    make("th", { scope: "col", className: className(i), textContent: text })
  ))));
  byId("coefficients").tBodies[0].replaceChildren(...coefficients.map((row) => {
    const { words: means, span } = meaning(release, model, row);
    const p = row.identified && row.p < 1e-4 ? "<1e-4" : digits(row.p, 3);
    const numbers = !row.identified ? ["", notIdentified, "", ""] : ratio ? ratioCells(row) : linearCells(row, span);
    const cells = [...numbers, p, means].map((text, i) => (
      make("td", { className: className(i + 1) + (text === notIdentified ? " wraps" : "") }, isolated(text))
    ));
    return make("tr", {}, make("th", { scope: "row" }, isolated(row.name + (row.standsFor.length ? " †" : ""))), ...cells);
  }));
  drawForest(release, model, notIdentified);
}

const between = (low, high, error) => `${toError(low, error)} to ${toError(high, error)}`;

function linearCells({ estimate, low, high, error }, span) {
  const across = span === null ? ""
    : `${toError(estimate * span, error * span)} (${between(low * span, high * span, error * span)})`;
  const numbers = [toError(estimate, error), between(low, high, error), toError(error, error)];
  return [...numbers, span === 1 ? "the same" : across];
}

function ratioCells({ ratio, estimate, error }) {
  const numbers = [toError(estimate, error), toError(error, error)], width = ratio && (ratio.high - ratio.low) / 4;
  const inside = (value) => (Number.isFinite(width) ? toError(value, width) : digits(value)); // an end may be infinite
  const shown = (value) => (value > MOST_RATIO ? `>${MOST_RATIO}` : value < 1 / MOST_RATIO ? `<${1 / MOST_RATIO}` : inside(value));
  return [...(ratio ? [shown(ratio.ratio), `${shown(ratio.low)} to ${shown(ratio.high)}`] : ["", ""]), ...numbers];
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

// What the coefficients of a generalised linear model are, and where they are doubtful.
function aboutLikelihood(release, model) {
  const { coefficients, summary, scale } = model;
  const words = [`Coefficients approximate those of maximum likelihood, assuming a distribution of the predictors with the ` +
    `release's second moments. Standard errors include an estimate of the error of this assumption, at least half of the sampling standard error.`];
  const large = coefficients.filter(({ source, identified, assumed, error }) => (
    source !== null && identified && assumed > LARGE * Math.sqrt(Math.max(error ** 2 - assumed ** 2, 0))
  ));
  if (large.length) {
    const all = large.length > 3 && large.length === coefficients.filter(({ source, identified }) => source !== null && identified).length;
    words.push(`This assumption adds more than a third of the standard error of the noise to ` +
      `${all ? "all coefficients" : large.map((row) => row.name).join(", ")}.`);
  }
  const separating = scale === "logit" ? new Set(summary.separating.length ? summary.separating : withoutBound(release, model)) : new Set();
  if (separating.size) {
    words.unshift(`The predictors nearly separate the response; remove ${[...separating].join(" or ")}.`);
  } else if (!summary.converged) words.push(`The ${scale} model did not converge.`);
  return words;
}

// Columns with an odds ratio that has no useful bound, per unit or across a declared range of less than one unit.
function withoutBound(release, model) {
  const far = ({ span }, value) => Math.abs(value) * Math.min(span ?? 1, 1) > Math.log(MOST_RATIO);
  return model.coefficients.filter((row) => row.identified && row.ratio &&
    [row.low, row.high].some((value) => far(meaning(release, model, row), value))).map((row) => row.source);
}

// Coefficients and intervals as in the table, one line each, as wide as the page allows; ratios on a log axis.
function drawForest(release, model, notIdentified) {
  const LINE = 28, TOP = 8, LETTER = 7.6, holder = byId("forest"), ratio = FAMILIES[model.scale]?.ratio;
  const rows = model.coefficients.filter((row) => meaning(release, model, row).span !== null), known = rows.filter((row) => row.identified);
  holder.replaceChildren();
  if (!known.length) return;
  const most = ratio ? Math.log(MOST_RATIO) : Infinity, cut = (value) => Math.min(Math.max(value, -most), most);
  const ends = [0, ...known.flatMap((row) => [row.estimate, row.low, row.high].map(cut))].filter(Number.isFinite);
  const margin = 0.05 * (Math.max(...ends) - Math.min(...ends)) || 1;
  const low = Math.min(...ends) - margin, high = Math.max(...ends) + margin;
  const width = Math.max(280, Math.min(holder.clientWidth, 720)), right = width - 28, bottom = TOP + LINE * rows.length;
  const left = Math.min(Math.max(...rows.map(({ name }) => Array.from(name).length)) * LETTER + 14, width * 0.36);
  const room = Math.max(6, Math.floor((left - 14) / LETTER + 0.01)); // letters of a name
  const at = (value) => left + ((value - low) / (high - low)) * (right - left);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${bottom + 44}`, role: "img" });
  const put = (tag, attributes, text) => picture.appendChild(svg(tag, attributes, text));
  picture.setAttribute("aria-label", `Forest plot of ${model.name}: ${known.length} coefficients with intervals, ` +
    `${rows.length - known.length} not identified. The table below has the numbers.`);
  for (const [value, text] of ratio ? logTicks(low, high, (right - left) / 64) : linearTicks(low, high, (right - left) / 80)) {
    const x = at(value);
    put("line", { class: value ? "grid" : "zero", x1: x, x2: x, y1: TOP, y2: bottom });
    put("text", { class: "tick", x, y: bottom + 16, "text-anchor": "middle" }, text);
  }
  const words = `per unit or versus the reference, ${ratio ? `${ratio}, log scale` : "units of the response"}`;
  put("text", { class: "axis", x: right, y: bottom + 36, "text-anchor": "end" }, words);
  rows.forEach((row, i) => {
    const y = TOP + LINE * (i + 0.5), letters = Array.from(row.name);
    const label = letters.length > room ? `${letters.slice(0, room - 1).join("")}…` : row.name;
    put("text", { x: 0, y: y + 4 }, label).append(svg("title", {}, row.name));
    if (!row.identified) {
      put("text", { class: "unknown", x: left + 4, y: y + 4 }, notIdentified);
      return;
    }
    const [a, b] = [row.low, row.high].map((end, k) => (Number.isFinite(cut(end)) ? at(cut(end)) : [left, right][k]));
    put("path", { class: "interval", d: `M${a} ${y - 5}v10m0 -5H${b}m0 -5v10` });
    put("circle", { class: "estimate", cx: at(cut(row.estimate)), cy: y, r: 5 })
      .append(svg("title", {}, ratio ? `${row.name}: ${ratioCells(row).slice(0, 2).join(", ")}`
        : `${row.name}: ${toError(row.estimate, row.error)}, ${between(row.low, row.high, row.error)}`));
  });
  holder.append(picture);
}

// Ticks [place, text] at round numbers, at most `many`.
function linearTicks(low, high, many) {
  const most = Math.max(4, Math.floor(many)), power = 10 ** Math.floor(Math.log10((high - low) / most));
  const step = [1, 2, 5, 10].map((m) => m * power).find((m) => (high - low) / m <= most), found = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) found.push([i * step, String(Number((i * step).toPrecision(6)))]);
  return found;
}

// Ticks of ratios between exp(low) and exp(high): 1, and others by equal factors.
function logTicks(low, high, many) {
  const most = Math.max(2, Math.floor(many)), factors = [1.001, 1.002, 1.005, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 5, 10, 100, 1e3, 1e4, 1e6];
  const step = Math.log(factors.find((factor) => (high - low) / Math.log(factor) <= most) ?? MOST_RATIO), found = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) found.push([i * step, String(Number(Math.exp(i * step).toPrecision(step < 0.01 ? 4 : 3)))]);
  return found;
}

// The library call that gives the same numbers.
function inPython(release, { response, predictors, levels, reference, scale, rows }, declared) {
  const text = JSON.stringify, options = [], collapse = new Map();
  const used = withNeeds(release, predictors).map((own) => own.name);
  for (const name of used.filter((own) => levels.has(own))) {
    const groups = new Map(), names = levels.get(name), { labels } = release.part.get(name);
    labels.forEach((label, i) => groups.set(names[i], [...(groups.get(names[i]) || []), label]));
    const changed = [...groups].filter(([label, members]) => members.length > 1 || members[0] !== label);
    if (changed.length) collapse.set(name, Object.fromEntries(changed));
  }
  const references = [...reference].filter(([name]) => used.includes(name));
  if (collapse.size) options.push(`collapse=${text(Object.fromEntries(collapse))}`);
  if (references.length) options.push(`reference=${text(Object.fromEntries(references))}`);
  if (rows !== null) options.push('estimand="population"', ...(declared === null ? [] : [`n_rows=${declared}`]));
  const method = scale === "linear" ? "ols" : scale;
  return `release.${method}(${text(response)}, ${text(predictors)}).summary(${options.join(", ")})`;
}

// Columns as in `tidy()`; values of unidentified coefficients are NaN.
function saveCoefficients({ response, scale, coefficients }) {
  const head = ["term", "estimate", "std.error", "statistic", "p.value", "conf.low", "conf.high", "privacy.share"];
  const rows = coefficients.map((row) => {
    const { name, estimate, error, p, low, high, share } = row;
    return [name, estimate, error, estimate / error, p, low, high, share];
  });
  if (FAMILIES[scale]) {
    const name = FAMILIES[scale].ratio.replace(" ", ".");
    head.push("distribution.error", name, `${name}.low`, `${name}.high`);
    coefficients.forEach(({ assumed, ratio }, i) => rows[i].push(assumed, ...(ratio ? [ratio.ratio, ratio.low, ratio.high] : [NaN, NaN, NaN])));
  }
  const file = response.replace(/[^\p{L}\p{N}_-]+/gu, "-").slice(0, 40) || "column";
  saveTable(`coefficients-${file}`, [head, ...rows]);
}

// Input fields of the prediction form by column; entered values are kept if the model still has the column.
const DAY = 86400000;
const asDate = (origin, days) => new Date(Date.parse(origin) + Math.round(days) * DAY).toISOString().slice(0, 10);

function buildFields(release, model, typed, changed) {
  const used = new Set(model.problem.features.map((own) => own.source));
  const parts = release.parts.filter((own) => used.has(own.name)), names = JSON.stringify(parts.map((own) => own.name));
  if (byId("typed").dataset.names === names) return;
  byId("typed").dataset.names = names;
  byId("typed").replaceChildren(...parts.map(({ name, kind, labels, unknown, lower, upper, origin, typical }, i) => {
    const others = unknown === "zero" ? ["(none of these)"] : [];
    const choices = kind === "boolean" ? ["false", "true"] : [...(labels || []), ...others];
    const value = typed.get(name) ?? (kind === "boolean" ? false : typical ?? choices[0]);
    const input = kind !== "numeric" ? make("select", {}, ...choices.map((label) => option(label)))
      : origin ? make("input", { type: "date", min: asDate(origin, lower), max: asDate(origin, upper) })
        : make("input", { type: "number", step: "any" });
    input.id = `typed-${i}`;
    input.value = origin ? asDate(origin, value) : String(value);
    typed.set(name, value);
    input.addEventListener("input", () => {
      const number = origin ? (Date.parse(input.value) - Date.parse(origin)) / DAY : parseFloat(input.value);
      typed.set(name, kind === "numeric" ? number : kind === "boolean" ? input.value === "true" : input.value);
      changed();
    });
    const bounds = kind === "numeric" && !origin ? make("span", { className: "note" }, `${lower} to ${upper}`) : "";
    return make("label", { htmlFor: input.id }, isolated(name), input, bounds);
  }));
}

function showPrediction(release, model, typed) {
  const { mean, error, interval } = predict(release, model, typed), { origin } = release.part.get(model.response);
  const subject = model.scale === "logit" ? `Probability that ${model.name}` : `Mean of ${model.response}`;
  const days = origin ? ` days since ${origin}` : "";
  const level = percent(1 - model.alpha);
  const numbers = new Set(model.problem.features.map((own) => own.source));
  if ([...typed].some(([name, value]) => numbers.has(name) && Number.isNaN(value))) say("prediction", "Enter all numbers.");
  else if (Number.isNaN(mean)) say("prediction", `${subject}: not identified at this budget.`);
  else say("prediction", `${subject}: ${toError(mean, error)}${days}, ${level} interval ${between(...interval, error)}.`);
}
