// The model as the page shows it: words, a figure, a table, the same call in Python, a file.
const Coefficients = (() => {
  const { byId, cell, digits, fill, isolated, make, pValue, percent, range, saveTable, say } = Elements;
  const MOST = 200; // coefficients that a page computes at once

  // What a coefficient is for, and the declared range of its column; none for the intercept.
  function meaning(release, model, row) {
    if (row.source === null) return { words: "where all else is 0, or at the level that is measured from", span: null };
    const own = release.part.get(row.source);
    if (own.kind === "numeric") {
      const words = own.origin ? `per day, ${own.lower} to ${own.upper} days since ${own.origin}` : `per unit, ${own.lower} to ${own.upper}`;
      return { words, span: own.upper - own.lower };
    }
    if (own.kind === "boolean") return { words: "true against false", span: 1 };
    if (own.kind === "vector") return { words: "per unit", span: null };
    if (own.kind === "term") return { words: "per unit of the term", span: null };
    if (own.kind === "missing") return { words: "missing against the middle of its bounds", span: null };
    const reference = model.summary.problem.references.get(row.source);
    return reference ? { words: `against ${reference.name}`, span: 1 } : { words: "of this level", span: 1 };
  }

  const scaleOf = () => document.querySelector('input[name="scale"]:checked').value;

  function show(release, model, notIdentified) {
    const { coefficients } = model, odds = model.scale === "odds";
    const unknown = coefficients.filter((row) => !row.identified).length;
    say("model-words", words(release, model, unknown));
    say("model-error", "");
    byId("drop-unidentified").hidden = !unknown;
    drawForest(release, model, notIdentified);
    const level = percent(1 - model.alpha);
    const head = odds
      ? ["Coefficient", "Odds ratio", `${level} interval`, "Log odds", "Std. error", "p"]
      : ["Coefficient", "Per unit", `${level} interval`, "Std. error", "Across the declared range", "p"];
    byId("coefficients-caption").replaceChildren(isolated(`${model.response} explained by ${sources(coefficients)}`));
    fill(byId("coefficients"), [...head, make("th", { scope: "col", textContent: "Meaning" })], coefficients.map((row) => [
      row.name + (row.relies ? " *" : ""),
      ...(odds ? oddsCells(row, notIdentified) : linearCells(row, meaning(release, model, row).span, notIdentified)),
      pValue(row.p),
      cell("td", meaning(release, model, row).words, "words"),
    ]));
    byId("relies").hidden = !coefficients.some((row) => row.relies);
    say("python", inPython(model));
  }

  const sources = (coefficients) => {
    const found = [...new Set(coefficients.map((row) => row.source).filter((source) => source !== null))];
    return found.length ? found.join(", ") : "a constant";
  };

  const missing = (notIdentified) => cell("td", notIdentified, "number wraps");

  function linearCells(row, span, notIdentified) {
    if (!row.identified) return ["", missing(notIdentified), "", ""];
    const across = span === null ? "" : span === 1 ? "the same"
      : `${digits(row.estimate * span)} (${range([row.low * span, row.high * span])})`;
    return [digits(row.estimate), range([row.low, row.high]), digits(row.error, 3), across];
  }

  function oddsCells(row, notIdentified) {
    if (!row.identified) return ["", missing(notIdentified), "", ""];
    if (row.odds === null) return ["", "", digits(row.estimate), digits(row.error, 3)];
    return [digits(row.odds.ratio), range([row.odds.low, row.odds.high]), digits(row.estimate), digits(row.error, 3)];
  }

  function words(release, { summary, scale, coefficients }, unknown) {
    const all = coefficients.length, found = [`${all - unknown} of ${all} coefficients are identified at this budget.`];
    if (scale === "odds") found.push("They are discriminant coefficients, on the scale of log odds.");
    else if (!unknown) found.push(summary.dominated ? "Noise dominates R²: it says nothing." : `R² is about ${summary.rsquared.toFixed(3)}.`);
    if (summary.weakest) {
      const { names, strength } = summary.weakest;
      found.push(`The weakest direction, ${names.join(" with ")}, is ${Math.abs(strength).toFixed(1)} standard ` +
        `deviations ${strength >= 0 ? "above" : "below"} the noise.`);
    }
    if (summary.rows !== null) found.push(`Sampling error is that of ${Elements.whole(summary.rows)} rows.`);
    if (release.weighted) found.push("Rows are weighted.");
    if (release.shortened) found.push(`Rows far out are shortened, by ${release.shortened}.`);
    return found.join(" ");
  }

  function drawForest(release, model, notIdentified) {
    const odds = model.scale === "odds", across = scaleOf() === "range";
    const rows = model.coefficients.filter((row) => row.source !== null).map((row) => {
      const { span } = meaning(release, model, row), factor = across ? span : 1;
      const text = `${row.name}: ${digits(row.estimate)}, ${range([row.low, row.high])}`;
      return { ...row, text, span, estimate: row.estimate * factor, low: row.low * factor, high: row.high * factor };
    }).filter((row) => !across || row.span !== null);
    const known = rows.filter((row) => row.identified).length;
    Figures.forest(byId("forest"), rows, {
      label: `Forest plot of ${model.response}: ${known} coefficients with intervals, ` +
        `${rows.length - known} not identified. The table below has the numbers.`,
      axis: `${across ? "lower to upper bound" : "per unit"}, ${odds ? "log odds" : "units of the target"}`,
      unknown: notIdentified,
    });
  }

  // The same numbers from the library.
  function inPython({ target, scale, summary, asked }) {
    const text = JSON.stringify, options = [];
    if (Object.keys(asked.merge).length) options.push(`merge=${text(asked.merge)}`);
    if (Object.keys(asked.reference).length) options.push(`reference=${text(asked.reference)}`);
    if (summary.estimand === "population") {
      options.push('estimand="population"', ...(asked.rows === null ? [] : [`n_rows=${asked.rows}`]));
    }
    return `release.${scale === "odds" ? "classify" : "regress"}(${text(target)}, ${text(asked.on)}).summary(${options.join(", ")})`;
  }

  // The names of `tidy()`; where an interval does not end nothing is known.
  function saveFile({ target, scale, coefficients }) {
    const head = ["term", "estimate", "std.error", "statistic", "p.value", "conf.low", "conf.high", "privacy.share"];
    const odds = scale === "odds" ? ["odds.ratio", "odds.low", "odds.high"] : [];
    saveTable(`coefficients-${fileName(target)}`, [...head, ...odds], coefficients.map((row) => {
      const known = (value) => (row.identified ? value : NaN), ratios = row.odds || { ratio: NaN, low: NaN, high: NaN };
      return [
        row.name, known(row.estimate), known(row.error), known(row.error ? row.estimate / row.error : Infinity), row.p,
        row.low, row.high, known(row.share), ...(odds.length ? [ratios.ratio, ratios.low, ratios.high] : []),
      ];
    }));
  }

  const fileName = (text) => text.replace(/[^\p{L}\p{N}_-]+/gu, "-").slice(0, 40) || "column";

  function showError(words) {
    byId("forest").replaceChildren();
    byId("coefficients").tHead.replaceChildren();
    byId("coefficients").tBodies[0].replaceChildren();
    byId("coefficients-caption").replaceChildren();
    byId("drop-unidentified").hidden = true;
    byId("relies").hidden = true;
    say("model-words", "");
    say("python", "");
    say("model-error", words);
  }

  return { MOST, fileName, saveFile, show, showError };
})();
