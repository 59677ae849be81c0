// What a reader asks of a release, each in one call: the page's own door to the functions before it.
const Models = (() => {
  // A linear model, or the log odds of a column with two values: rows of coefficients, and what to know about them.
  function regress(release, { target, on, merge = {}, reference = {}, scale = "linear", estimand = "table", rows = null, alpha = 0.05 }) {
    const response = scale === "odds" ? Problems.classResponse(release, target) : Problems.numberResponse(release, target);
    const problem = Problems.of(release, response, on, { merge, reference });
    const summary = (scale === "odds" ? Odds : Summaries).of(problem, { estimand, rows });
    const intervals = Summaries.intervals(summary, alpha);
    const coefficients = summary.names.map((name, i) => ({
      name,
      source: problem.features[i].source,
      kind: problem.features[i].column.kind,
      estimate: summary.estimates[i],
      error: summary.errors[i],
      p: summary.p[i],
      low: intervals[i][0],
      high: intervals[i][1],
      share: summary.share[i],
      relies: summary.relies[i],
      identified: [summary.estimates[i], ...intervals[i]].every(Number.isFinite),
      odds: scale === "odds" && name !== Releases.INTERCEPT
        ? { ratio: Odds.ratio(summary.estimates[i]), low: Odds.ratio(intervals[i][0]), high: Odds.ratio(intervals[i][1]) }
        : null,
    }));
    return { target, scale, response: response.name, coefficients, summary, alpha };
  }

  // The mean, or the probability of the second class, for a row of values by column: a number, a label, or a boolean.
  function predict(release, model, values) {
    const features = featuresAt(release, model, values);
    if (model.scale === "odds") {
      const odds = Algebra.dot(features, model.summary.estimates);
      return { probability: 1 / (1 + Math.exp(-odds)) };
    }
    return Summaries.predict(model.summary, features, model.alpha);
  }

  // Features of a typed row in the user's units, numbers clipped to their bounds as in the release.
  function featuresAt(release, model, values) {
    return Float64Array.from(model.summary.problem.features, ({ source, indices }) => {
      if (source === null) return 1;
      const own = release.part.get(source), value = values[source];
      if (own.kind === "categorical") return Number(indices.some((i) => release.encoded[i].levels[0][1] === value));
      if (own.kind === "boolean") return Number(value);
      return Math.min(Math.max(value, own.lower), own.upper);
    });
  }

  // Whether a row can be typed in: every part is a column of the table that takes one value, and none is a hole's.
  const canPredict = (release, model) => release.intercept !== null && release.raw === null &&
    Coding.withNeeds(release, model.summary.problem.features.map((own) => own.source).filter((name) => name !== null))
      .every((own) => ["numeric", "boolean", "categorical"].includes(own.kind) && own.own && !own.marked);

  return { canPredict, predict, regress };
})();
