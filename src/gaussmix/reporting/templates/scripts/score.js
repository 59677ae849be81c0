// The score test of regression coefficients: estimates, p-values, intervals and standard errors.
const Scores = (() => {
  const IDENTIFIED = 0.05;
  const { apply, leading, map, multiply, transpose } = Algebra;

  // The tests of a problem, with no coefficient beyond its bounds; rows, where they were drawn from a population.
  function ofProblem(problem, rows, largest) {
    const bounds = Problems.bounds(problem, largest);
    const units = [...bounds, 1], inUnits = (A) => map(A, (value, i, j) => units[i] * value * units[j]);
    const { moment, spread, shape } = problem.noisy;
    const noisy = { ...problem.noisy, moment: inUnits(moment), spread: inUnits(spread), shape: inUnits(shape) };
    const functionals = map(problem.toUser, (value, i, j) => value * bounds[j]);
    return of(noisy, functionals, problem.offset, Weights.pilot(noisy, rows), rows);
  }

  // The tests of functionals of the coefficients, the i-th of them with a part in the i-th coefficient.
  function of(noisy, functionals, offset, pilot, rows) {
    const d = functionals.length, moment = leading(noisy.moment, d);
    const weights = Weights.of(pilot, moment, functionals), w = weights.columns;
    const level = apply(transpose(w), Algebra.column(noisy.moment, d).slice(0, d));
    const found = Weights.slopesAndBiases(w, moment, functionals), slope = found.slope;
    const bias = found.bias.map((value, j) => (weights.exact[j] ? 0 : value));
    const score = {
      noisy, functionals, offset, pilot, rows, weights, level, slope, bias,
      estimate: level.map((value, j) => value / slope[j] + offset[j]),
      middle: apply(functionals, pilot.theta),
    };
    score.variance = variances(score);
    score.atInfinity = slope.map((value, j) => {
      const p = 2 * Normal.cdf(-Math.abs(value) / Math.sqrt(score.variance.square[j]));
      return Number.isNaN(p) ? 1 : p;
    });
    return score;
  }

  // Coefficients of wᵀVw in powers of ψ - ψ̂, ψ̂ the pilot's.
  function variances({ noisy, functionals, pilot, weights }) {
    const d = functionals.length, w = weights.columns, a = Weights.unexplained(pilot.theta);
    const known = Weights.conditional(pilot, noisy, functionals), r = known.moves;
    const Q = leading(noisy.spread, d), Nw = multiply(leading(noisy.shape, d), w);
    const factor = Weights.noiseFactor(noisy, d - 1);
    const stretch = Weights.columnSums(w, multiply(Q, w)).map((value) => factor * value);
    const along = apply(transpose(w), apply(noisy.shape, a).slice(0, d)), turn = Weights.columnSums(Nw, r);
    const left = Weights.left(known, pilot.basis, Nw);
    const moved = apply(transpose(r), apply(noisy.spread, a).slice(0, d));
    const squared = Weights.columnSums(r, multiply(Q, r));
    const sampled = Weights.columnSums(w, multiply(pilot.sampling, w));
    return {
      constant: stretch.map((value, j) => noisy.alpha * (value * known.omega[j] + along[j] ** 2 + left[j]) + sampled[j]),
      linear: stretch.map((value, j) => -2 * noisy.alpha * (value * moved[j] + along[j] * turn[j])),
      square: stretch.map((value, j) => noisy.alpha * (value * squared[j] + turn[j] ** 2)),
    };
  }

  // The p-value of one value of one coefficient.
  function p(score, j, value) {
    const psi = value - score.offset[j], t = psi - score.middle[j];
    const { constant, linear, square } = score.variance;
    const deviation = Math.sqrt(Math.max(constant[j] + t * (linear[j] + t * square[j]), 1e-300));
    const distance = Math.abs(score.level[j] - psi * score.slope[j]) / deviation, bias = score.bias[j] / deviation;
    return Math.min(Normal.cdf(bias - distance) + Normal.cdf(-bias - distance), 1);
  }

  // Below a level exactly where the interval of that level leaves the value out.
  const pOfHull = (score, j, value) => Math.max(p(score, j, value), score.atInfinity[j]);

  // Both ends of the accepted values of one coefficient; infinite where they do not end.
  function interval(score, j, level) {
    if (!(score.atInfinity[j] < level)) return [-Infinity, Infinity];
    const middle = score.estimate[j];
    const unit = (Math.sqrt(score.variance.constant[j]) + score.bias[j]) / Math.abs(score.slope[j]);
    return [-1, 1].map((side) => {
      const inside = (steps) => p(score, j, middle + side * steps * unit) >= level;
      let low = 0, high = 4;
      while (inside(high) && high < 1e60) [low, high] = [high, 2 * high];
      for (let k = 0; k < 60; k++) {
        const half = (low + high) / 2;
        if (inside(half)) low = half;
        else high = half;
      }
      return middle + side * low * unit;
    });
  }

  const intervals = (score, level) => Array.from(score.slope, (_, j) => interval(score, j, level));

  // Covariances of the estimates at the estimates: from the noise, and from sampling.
  function covariance(score) {
    const { noisy, functionals, offset, pilot, weights, slope, rows } = score, d = functionals.length;
    const far = score.atInfinity.map((value) => value >= IDENTIFIED);
    const unknown = functionals.map((row) => row.some((value, j) => value !== 0 && far[j]));
    const theta = Algebra.solveVector(functionals, score.estimate.map((value, j) => value - offset[j])).map(
      (value, j) => Math.min(Math.max(unknown[j] || !Number.isFinite(value) ? pilot.theta[j] : value, -1), 1),
    );
    const w = map(weights.columns, (value, i, j) => value / slope[j]), wt = transpose(w);
    const factor = Weights.noiseFactor(noisy, d);
    const within = (V) => multiply(multiply(wt, V), w);
    return {
      noise: Algebra.scaled(within(Weights.scoreCovariance(noisy, theta, null, 1)), factor),
      sampling: within(Weights.samplingCovariance(noisy, theta, rows)),
    };
  }

  // Share of the intervals' half-lengths that is there for the bounds of other coefficients.
  function reliance(score, level) {
    const { noisy, pilot, weights, variance, bias } = score, w = weights.columns;
    const factor = Weights.noiseFactor(noisy, w.length - 1);
    const V = Algebra.add(Weights.scoreCovariance(noisy, pilot.theta, null, factor), pilot.sampling);
    const plain = Weights.columnSums(w, multiply(V, w)), critical = Normal.critical(level);
    return plain.map((value, j) => {
      const deviation = Math.sqrt(variance.constant[j]);
      return Math.max(1 - (critical(0) * Math.sqrt(value)) / (critical(bias[j] / deviation) * deviation), 0);
    });
  }

  // The tests with the mean at a row of features in the place of the intercept.
  function at(score, row) {
    const functionals = Algebra.copy(score.functionals), offset = Float64Array.from(score.offset);
    functionals[0] = apply(transpose(score.functionals), row);
    offset[0] = Algebra.dot(row, score.offset);
    return of(score.noisy, functionals, offset, score.pilot, score.rows);
  }

  return { at, covariance, interval, intervals, ofProblem, p, pOfHull, reliance };
})();
