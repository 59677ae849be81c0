// Tables without a model: description, correlations, cross-tables, group means.
const Tables = (() => {
  const { byId, cell, digits, fill, isolated, make, option, pValue, range, saveTable, say, whole } = Elements;
  const MOST_CELLS = 400;

  // -- rows, means, standard deviations, shares -------------------------------------------------------------------
  function describe(release, alpha) {
    const rows = Described.describe(release, alpha);
    const number = (row, value) => (row.statistic === "count" ? whole(value) : digits(value));
    fill(byId("description"), ["Column", "Statistic", "Estimate", "Std. error", `${Elements.percent(1 - alpha)} interval`],
      rows.map((row) => [
        row.term, row.statistic, number(row, row.estimate), digits(row.error, 3),
        row.statistic === "count" ? row.interval.map(whole).join(" to ") : range(row.interval),
      ]));
    byId("save-description").onclick = () => saveTable("description",
      ["term", "statistic", "estimate", "std.error", "conf.low", "conf.high"],
      rows.map((row) => [row.term, row.statistic, row.estimate, row.error, ...row.interval]));
  }

  // -- correlations: colour and number ----------------------------------------------------------------------------
  function correlations(release, alpha) {
    const { names, values, deviations } = Described.correlations(release, Described.columns(release).map((own) => own.name));
    const head = names.map((name, i) => make("th", { scope: "col", className: "number", title: name },
      make("span", { textContent: String(i + 1), ariaHidden: "true" }), make("span", { className: "unseen", textContent: name })));
    fill(byId("correlations"), [make("th", { scope: "col", textContent: "Column" }), ...head], names.map((name, i) => [
      make("th", { scope: "row" }, `${i + 1} `, isolated(name)),
      ...names.map((other, j) => {
        const r = values[i][j], known = Number.isFinite(r);
        const square = cell("td", known ? (Math.round(100 * r) / 100 + 0).toFixed(2) : "–", "number heat");
        square.title = known ? `${name} with ${other}: ${digits(r)} ± ${digits(deviations[i][j], 2)}` : `${name} with ${other}: not told from noise`;
        if (known) {
          square.style.setProperty("--strength", `${(45 * Math.abs(r)).toFixed(1)}%`);
          square.classList.add(r < 0 ? "below" : "above");
        }
        return square;
      }),
    ]));
    const z = Normal.upper(alpha / 2), within = (value) => Math.min(Math.max(value, -1), 1);
    const pairs = names.flatMap((name, i) => names.slice(i + 1).map((other, k) => {
      const r = values[i][i + 1 + k], deviation = deviations[i][i + 1 + k];
      return [name, other, r, deviation, within(r - z * deviation), within(r + z * deviation)];
    }));
    byId("save-correlations").onclick = () => saveTable("correlations",
      ["term", "with", "estimate", "std.error", "conf.low", "conf.high"], pairs);
  }

  // -- cross-tables -----------------------------------------------------------------------------------------------
  const categories = (release) => Described.columns(release).filter((own) => ["categorical", "boolean"].includes(own.kind));

  function crosstab(release, alpha) {
    const one = release.part.get(byId("cross-rows").value), two = release.part.get(byId("cross-columns").value);
    const table = byId("cross"), [a, b] = [one, two].map((own) => Counts.kinds(own).labels.length);
    const problem = one === two ? "Choose two different columns."
      : a * b > MOST_CELLS ? "More than 400 cells: gaussmix crosstab has them." : "";
    byId("save-cross").disabled = Boolean(problem);
    if (problem) {
      fill(table, [], []);
      say("cross-words", problem);
      return;
    }
    const found = Counts.crosstab(release, one, two, alpha), z = Normal.upper(alpha / 2);
    const sum = (values) => values.reduce((total, value) => total + value, 0);
    fill(table, [`${one.name} by ${two.name}`, ...found.columns, "all"], [
      ...found.rows.map((label, i) => [
        label, ...found.estimates[i].map((count, j) => `${whole(count)} ± ${whole(z * found.deviations[i][j])}`), whole(sum(found.estimates[i])),
      ]),
      ["all", ...found.columns.map((_, j) => whole(sum(found.estimates.map((row) => row[j])))), whole(sum(found.estimates.flat()))],
    ]);
    const { statistic, p, degrees, share } = found.independence;
    say("cross-words", Number.isNaN(p) ? "Independence in the population is not told at this budget."
      : `Independence in the population: chi-square ${digits(statistic)}, ${degrees} degree${degrees === 1 ? "" : "s"} of freedom, p ${p < 1e-4 ? pValue(p) : `= ${pValue(p)}`}; ` +
        `${(100 * share).toFixed(0)} % of the variance is privacy noise.`);
    byId("save-cross").onclick = () => saveTable("cross-table",
      [one.name, two.name, "estimate", "std.error", "conf.low", "conf.high", "row.share"],
      found.rows.flatMap((row, i) => found.columns.map((column, j) => [
        row, column, found.estimates[i][j], found.deviations[i][j], found.low[i][j], found.high[i][j], found.rowShares[i][j],
      ])));
  }

  function means(release, alpha) {
    const target = release.part.get(byId("mean-of").value), by = release.part.get(byId("mean-by").value);
    byId("save-means").disabled = target === by;
    if (target === by) {
      fill(byId("means"), [], []);
      return;
    }
    const rows = Counts.means(release, target, by, alpha);
    fill(byId("means"), [by.name, `Mean of ${target.name}`, "Std. error", `${Elements.percent(1 - alpha)} interval`],
      rows.map((row) => [row.label, digits(row.mean), digits(row.error, 3), range(row.interval)]));
    byId("save-means").onclick = () => saveTable("means", [by.name, "mean", "std.error", "conf.low", "conf.high"],
      rows.map((row) => [row.label, row.mean, row.error, ...row.interval]));
  }

  function build(release, alpha) {
    const levels = categories(release), numbers = Described.columns(release).filter((own) => ["numeric", "boolean"].includes(own.kind));
    const choose = (id, parts, place, redraw) => {
      byId(id).replaceChildren(...parts.map((own) => option(own.name)));
      byId(id).value = parts[Math.min(place, parts.length - 1)].name;
      byId(id).addEventListener("change", redraw);
    };
    const crossed = () => crosstab(release, alpha()), grouped = () => means(release, alpha());
    const hasCross = levels.length > 1 && release.rows !== null, hasMeans = levels.length > 0 && numbers.length > 0;
    byId("cross-box").hidden = !hasCross;
    byId("means-box").hidden = !hasMeans;
    if (hasCross) {
      choose("cross-rows", levels, 0, crossed);
      choose("cross-columns", levels, 1, crossed);
    }
    if (hasMeans) {
      choose("mean-of", numbers, numbers.length - 1, grouped);
      choose("mean-by", levels, 0, grouped);
    }
    return () => {
      describe(release, alpha());
      correlations(release, alpha());
      if (hasCross) crossed();
      if (hasMeans) grouped();
    };
  }

  return { build };
})();
