// Coefficients with standard errors, p-values, intervals and R² of one regression.
const Summaries = (() => {
  const LARGEST = 5, RELIES = 0.05;

  // Rows that a population was sampled by: as stated, or as the release shows them.
  function rowsOfSample(problem, stated) {
    const { release } = problem;
    if (release.weighted) throw new Error("Rows have weights: intervals are for the weighted table alone.");
    if (!release.noisy.independent) throw new Error("One person has several rows: intervals are for this table alone.");
    if (stated !== null) return stated;
    if (release.sample_rows === null) {
      throw new Error("The release does not show how many rows there are: state it, if it is public.");
    }
    return release.sample_rows;
  }

  // Within [0, 1], and whether noise took it out of there: then it says nothing.
  function explained(problem, theta) {
    if (!(problem.total > 0)) return { rsquared: 0, dominated: true };
    const plain = 1 - Problems.residual(problem, theta) / problem.total;
    const rsquared = Math.min(Math.max(plain, 0), 1);
    return { rsquared, dominated: !(Math.abs(plain - rsquared) <= 1e-9) };
  }

  function of(problem, { estimand = "table", rows: stated = null } = {}) {
    const rows = estimand === "population" ? rowsOfSample(problem, stated) : null;
    const summary = problem.noisy.alpha === 0 && rows === null ? withoutNoise(problem) : tested(problem, rows);
    const variance = Algebra.diagonal(Algebra.add(summary.noise, summary.sampling)).map((value) => Math.max(value, 0));
    return {
      ...summary,
      problem, estimand, rows,
      names: problem.names,
      errors: variance.map(Math.sqrt),
      share: Algebra.diagonal(summary.noise).map((value, i) => value / variance[i]),
      ...explained(problem, summary.theta),
      weakest: problem.noisy.alpha ? Problems.weakest(problem) : null,
    };
  }

  function tested(problem, rows) {
    const score = Scores.ofProblem(problem, rows, LARGEST), bounds = Problems.bounds(problem, LARGEST);
    return {
      score,
      estimates: score.estimate,
      p: score.estimate.map((_, j) => Scores.pOfHull(score, j, 0)),
      relies: Array.from(Scores.reliance(score, 0.05), (share) => share > RELIES),
      theta: score.pilot.theta.map((value, i) => bounds[i] * value),
      ...Scores.covariance(score),
    };
  }

  function withoutNoise(problem) {
    const { d, noisy } = problem, nothing = Algebra.zeros(d, d);
    const cross = Algebra.column(noisy.moment, d).slice(0, d);
    const theta = Algebra.apply(Algebra.pseudoInverse(Algebra.leading(noisy.moment, d)), cross);
    return {
      score: null,
      estimates: Algebra.apply(problem.toUser, theta).map((value, i) => value + problem.offset[i]),
      p: new Float64Array(d).fill(NaN),
      relies: Array.from(theta, () => false),
      theta,
      noise: nothing,
      sampling: nothing,
    };
  }

  const intervals = (summary, alpha) => (summary.score === null
    ? Array.from(summary.estimates, (value) => [value, value])
    : summary.tests ? Odds.intervals(summary.tests, alpha) : Scores.intervals(summary.score, alpha));

  // The mean at a row of features in the user's units, with standard error and interval.
  function predict(summary, row, alpha) {
    const covariance = Algebra.add(summary.noise, summary.sampling);
    const error = Math.sqrt(Math.max(Algebra.quadratic(row, covariance), 0));
    if (summary.score === null) {
      const mean = Algebra.dot(row, summary.estimates);
      return { mean, error, interval: [mean, mean] };
    }
    const score = Scores.at(summary.score, row);
    return { mean: score.estimate[0], error, interval: Scores.interval(score, 0, alpha) };
  }

  return { intervals, of, predict };
})();
