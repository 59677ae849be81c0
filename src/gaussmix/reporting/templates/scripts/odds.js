// Discriminant coefficients, on the scale of log odds, from least squares on a 0/1 response; and odds ratios.
const Odds = (() => {
  const LEAST_P = 1e-12;
  const { add, apply, map, multiply, quadratic, transpose } = Algebra;

  const shift = (share) => Math.log(share / (1 - share)) + (1 - 2 * share) / (2 * share * (1 - share)); // h(π)

  // v, what the intercept is moved by, and their errors, at coefficients θ; score is null without noise.
  function scaleOf(noisy, theta, intercept, score) {
    const d = theta.length, a = Weights.unexplained(theta), y = new Float64Array(d + 1);
    y[d] = 1;
    const forms = intercept === null ? [y]
      : [-1, 1].map((side) => intercept.map((value, i) => (value + side * y[i]) / 2));
    const values = forms.map((form) => quadratic(form, noisy.moment));
    const n = Math.max(values.reduce((sum, value) => sum + value, 0), 1);
    const share = intercept === null ? 0.5 : Math.min(Math.max(values[1] / n, 0.5 / n), 1 - 0.5 / n);
    const xx = Algebra.leading(noisy.moment, d);
    const spent = score === null ? 0 : Math.max(Algebra.total(xx, score.pilot.covariance), 0);
    const v = (quadratic(a, noisy.moment) + spent) / (4 * n), moved = shift(share);
    if (score === null) return { v, moved };
    const toV = [...forms.map(() => -v / n), 1 / (4 * n)];
    const toShare = intercept === null ? toV.map(() => 0) : [-share / n, (1 - share) / n, 0];
    const steep = 1 / (share * (1 - share)) - (share ** -2 + (1 - share) ** -2) / 2; // h'
    const gradients = [toV, toV.map((value, i) => moved * value + v * steep * toShare[i])];
    const U = transpose([...forms, a]), QU = multiply(noisy.spread, U);
    const quadratics = map(multiply(transpose(U), QU), (value) => 2 * noisy.alpha * value ** 2);
    const both = [[1, moved], [moved, moved ** 2]];
    const noise = map(multiply(multiply(gradients.map(floats), quadratics), transpose(gradients.map(floats))),
      (value, i, j) => value + ((2 * (spent / (4 * n)) ** 2) / d) * both[i][j]);
    const aQU = apply(transpose(QU), a);
    const w = map(score.weights.columns, (value, i, j) => value / score.slope[j]);
    const moves = map(multiply(transpose(w), QU.slice(0, d)), (value, i, j) => 2 * noisy.alpha * value * aQU[j]);
    const withB = multiply(moves, transpose(gradients.map(floats)));
    const sampling = Algebra.zeros(2, 2);
    if (score.rows !== null) {
      const ofV = Math.max(v * (1 - 4 * v), 0) / score.rows, ofShare = (share * (1 - share)) / score.rows;
      sampling.forEach((row, i) => row.forEach((_, j) => { row[j] = ofV * both[i][j]; }));
      if (intercept !== null) sampling[1][1] += (v * steep) ** 2 * ofShare;
    }
    return { v, moved, noise, sampling, withB };
  }

  const floats = (values) => Float64Array.from(values);

  // The combination of a problem's columns that is 1 in every row, in given units.
  function constantOf(problem, units) {
    const found = new Float64Array(problem.d + 1);
    found[0] = 0.5 / problem.toUser[0][0] / units;
    return found;
  }

  // The summary of β in place of that of b.
  function of(problem, options) {
    const own = Summaries.of(problem, options), hasConstant = problem.names[0] === Releases.INTERCEPT;
    const constant = Float64Array.from(problem.names, (_, i) => Number(hasConstant && i === 0));
    if (own.score === null) {
      const theta = Algebra.solveVector(problem.toUser, own.estimates.map((value, i) => value - problem.offset[i]));
      const { v, moved } = scaleOf(problem.noisy, theta, hasConstant ? constantOf(problem, 1) : null, null);
      const estimates = own.estimates.map((b, i) => (b - 0.5 * constant[i]) / v + moved * constant[i]);
      return { ...own, estimates, discriminant: true };
    }
    const { score } = own, [unit] = Problems.bounds(problem, 5);
    const scale = scaleOf(score.noisy, score.pilot.theta, hasConstant ? constantOf(problem, unit) : null, score);
    const estimate = score.estimate.map((b, i) => (b - 0.5 * constant[i]) / scale.v + scale.moved * constant[i]);
    const tests = { score, scale, constant, estimate, deviation: own.errors };
    const toBeta = Array.from(estimate, (beta, i) => floats([
      ...estimate.map((_, j) => Number(i === j) / scale.v), -beta / scale.v, constant[i] / scale.v,
    ]));
    const carried = (b, cross, e) => {
      const d = b.length, whole = Algebra.zeros(d + 2, d + 2);
      b.forEach((row, i) => row.forEach((value, j) => { whole[i][j] = value; }));
      e.forEach((row, i) => row.forEach((value, j) => { whole[d + i][d + j] = value; }));
      if (cross) cross.forEach((row, i) => row.forEach((value, j) => { whole[i][d + j] = whole[d + j][i] = value; }));
      return multiply(multiply(toBeta, whole), transpose(toBeta));
    };
    const noise = carried(own.noise, scale.withB, scale.noise), sampling = carried(own.sampling, null, scale.sampling);
    const variance = Algebra.diagonal(add(noise, sampling)).map((value) => Math.max(value, 0));
    return {
      ...own, noise, sampling, tests,
      estimates: estimate,
      errors: variance.map(Math.sqrt),
      share: Algebra.diagonal(noise).map((value, i) => Math.min(Math.max(value / variance[i], 0), 1)),
      p: estimate.map((_, i) => (constant[i] ? pOf(tests, i, 0) : Scores.pOfHull(score, i, 0))),
      discriminant: true,
    };
  }

  // Ends of the accepted values of one β; infinite where they do not end.
  function interval(tests, i, level) {
    const { score, scale, constant, deviation } = tests, { v, moved } = scale, z = Normal.upper(level / 2);
    const S = add(scale.noise, scale.sampling), C = scale.withB[i], c = constant[i];
    const middle = score.estimate[i] + c * (moved * v - 0.5);
    const own = Scores.interval(score, i, level);
    const ends = [-1, 1].map((side, at) => {
      const H = Math.abs(own[at] - score.estimate[i]), stretch = deviation[i] > 0 ? H / deviation[i] : z;
      const A = v ** 2 - z ** 2 * S[0][0]; // accepted: β²A - 2βB + D ≤ 0
      const B = middle * v - z * stretch * C[0] - z ** 2 * c * S[0][1];
      const D = middle ** 2 - H ** 2 - c * (z ** 2 * S[1][1] + 2 * z * stretch * C[1]);
      const end = (B + side * Math.sqrt(Math.max(B ** 2 - A * D, 0))) / A;
      return Number.isFinite(H) && A > 0 && v > 0 ? end : side * Infinity;
    });
    return ends.every(Number.isFinite) ? ends : [-Infinity, Infinity];
  }

  const intervals = (tests, level) => Array.from(tests.estimate, (_, i) => interval(tests, i, level));

  // The level at which an interval ends at a value, by bisection of its logarithm.
  function pOf(tests, i, value) {
    const accepted = (level) => {
      const [left, right] = interval(tests, i, level);
      return left <= value && value <= right;
    };
    let low = Math.log(LEAST_P), high = 0;
    if (!accepted(LEAST_P)) return 0;
    for (let k = 0; k < 30; k++) {
      const half = (low + high) / 2;
      if (accepted(Math.exp(half))) low = half;
      else high = half;
    }
    return Math.exp(low);
  }

  // exp(β), kept finite.
  const ratio = (beta) => (Number.isFinite(beta) ? Math.exp(Math.min(beta, 700)) : beta > 0 ? Infinity : 0);

  return { intervals, of, ratio };
})();
