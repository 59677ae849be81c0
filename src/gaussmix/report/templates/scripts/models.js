// Models: least squares, or discriminant coefficients on the log-odds scale; and predictions.
const BOUND_DEPENDENT = 0.05, LEAST_P = 1e-12;

// Estimates, standard errors, p-values and intervals of least squares, and R².
function leastSquares(problem, rows) {
  const score = scoreOf(problem, rows), { noise, sampling } = covariances(score);
  const left = quadratic(unexplained(score.pilot.theta), problem.noisy.moment);
  const plain = problem.squares > 0 ? 1 - left / problem.squares : NaN, rsquared = Math.min(Math.max(plain, 0), 1) || 0;
  return {
    score, noise, sampling, rsquared,
    dominated: !(Math.abs(plain - rsquared) <= 1e-9), // noise moved R² out of [0, 1]: it is not estimable
    estimates: score.estimate,
    p: score.estimate.map((_, j) => score.pOfHull(j, 0)),
    boundDependent: Array.from(reliance(score), (share) => share > BOUND_DEPENDENT),
    interval: score.interval,
    ...errorsOf(noise, sampling),
  };
}

function errorsOf(noise, sampling) {
  const variance = diagonal(add(noise, sampling)).map((value) => Math.max(value, 0));
  const share = diagonal(noise).map((value, i) => Math.min(Math.max(value / variance[i], 0), 1));
  return { errors: variance.map(Math.sqrt), share };
}

// β = (b + e)/v from least squares b on a response of 0 and 1: v is its residual variance; e = h(π)v - 1/2 for the
// intercept, π the share of the second class, and 0 for all others (gaussmix.models.odds and families).
function logOdds(problem, own) {
  const { score } = own, { noisy, functionals, constant } = problem, d = functionals.length;
  const first = Float64Array.from(functionals, (_, i) => Number(constant && i === 0));
  const { v, moved, noise, sampling, withB } = scaleOf(noisy, functionals, constant, score);
  const middle = score.estimate.map((b, i) => b + first[i] * (moved * v - 0.5));
  const estimates = middle.map((value) => value / v);
  const toBeta = Array.from(estimates, (beta, i) => Float64Array.of(
    ...estimates.map((_, j) => Number(i === j) / v), -beta / v, first[i] / v,
  ));
  const carried = (ofB, cross, ofScale) => {
    const upper = ofB.map((row, i) => [...row, ...cross[i]]);
    const lower = ofScale.map((row, i) => [...column(cross, i), ...row]);
    return multiply(multiply(toBeta, [...upper, ...lower]), transpose(toBeta));
  };
  const S = add(noise, sampling);
  // Ends of the accepted values of one β, β²A - 2βB + D ≤ 0; infinite if they are unbounded.
  const interval = (i, alpha) => {
    const z = critical(alpha), inner = score.interval(i, alpha), e = first[i], C = withB[i];
    const A = v ** 2 - z ** 2 * S[0][0];
    const ends = [-1, 1].map((side, at) => {
      const H = Math.abs(inner[at] - score.estimate[i]), stretch = own.errors[i] > 0 ? H / own.errors[i] : z;
      const B = middle[i] * v - z * stretch * C[0] - z ** 2 * e * S[0][1];
      const D = middle[i] ** 2 - H ** 2 - e * (z ** 2 * S[1][1] + 2 * z * stretch * C[1]);
      return (B + side * Math.sqrt(Math.max(B ** 2 - A * D, 0))) / A;
    });
    return A > 0 && v > 0 && ends.every(Number.isFinite) ? ends : [-Infinity, Infinity];
  };
  const ofNoise = carried(own.noise, withB, noise), ofSampling = carried(own.sampling, zeros(d, 2), sampling);
  return {
    ...own, estimates, interval, noise: ofNoise, sampling: ofSampling, ...errorsOf(ofNoise, ofSampling),
    p: estimates.map((_, i) => (first[i] ? pByBisection((alpha) => interval(i, alpha)) : own.p[i])),
  };
}

// v, the shift of the intercept, their covariances, and those with b.
function scaleOf(noisy, functionals, constant, { pilot, w, slope, rows }) {
  const d = functionals.length, { moment } = noisy, a = unexplained(pilot.theta);
  const y = Float64Array.from(a, (_, i) => Number(i === d));
  const one = y.map((_, i) => (i ? 0 : 0.5 / functionals[0][0])); // 1 in every row
  const forms = constant ? [-1, 1].map((side) => one.map((value, i) => (value + side * y[i]) / 2)) : [y];
  const counts = forms.map((form) => quadratic(form, moment)), n = Math.max(counts.reduce((x, other) => x + other), 1);
  const share = constant ? Math.min(Math.max(counts[1] / n, 0.5 / n), 1 - 0.5 / n) : 0.5, both = share * (1 - share);
  const spent = Math.max(total(leading(moment, d), pilot.covariance), 0) / (4 * n); // reduction of aᵀMa by fitting
  const v = quadratic(a, moment) / (4 * n) + spent;
  const moved = Math.log(share / (1 - share)) + (1 - 2 * share) / (2 * both); // h
  const steep = 1 / both - (share ** -2 + (1 - share) ** -2) / 2; // h'
  const toV = [...forms.map(() => -v / n), 1 / (4 * n)], toShare = constant ? [-share / n, (1 - share) / n, 0] : [0, 0];
  const gradients = [toV, toV.map((value, i) => moved * value + v * steep * toShare[i])];
  const U = transpose([...forms, a]), QU = multiply(noisy.shape, U), aQU = apply(transpose(QU), a);
  const quadratics = map(multiply(transpose(U), QU), (value) => 2 * value ** 2);
  const outer = [[1, moved], [moved, moved ** 2]];
  const carried = multiply(multiply(gradients, quadratics), transpose(gradients));
  const moves = multiply(transpose(w), QU.slice(0, d)).map((row, j) => (
    row.map((value, k) => (2 * value * aQU[k]) / slope[j])
  ));
  const ofV = rows === null ? 0 : Math.max(v * (1 - 4 * v), 0) / rows;
  const ofShare = rows === null || !constant ? 0 : (v * steep) ** 2 * (both / rows);
  return {
    v, moved,
    noise: map(carried, (value, i, j) => value + ((2 * spent ** 2) / d) * outer[i][j]),
    sampling: map(zeros(2, 2), (_, i, j) => ofV * outer[i][j] + (i && j ? ofShare : 0)),
    withB: multiply(moves, transpose(gradients)),
  };
}

// The level at which an end of the interval is 0, by bisection of its logarithm.
function pByBisection(interval) {
  const accepted = (alpha) => {
    const [low, high] = interval(alpha);
    return low <= 0 && 0 <= high;
  };
  if (!accepted(LEAST_P)) return 0;
  let low = Math.log(LEAST_P), high = 0;
  for (let k = 0; k < 30; k++) {
    const half = (low + high) / 2;
    if (accepted(Math.exp(half))) low = half;
    else high = half;
  }
  return Math.exp(low);
}

const ratio = (beta) => Math.exp(Math.min(beta, Number.isFinite(beta) ? 700 : Infinity)); // finite where β is

// A model: coefficients and summary statistics. `rows` is the sample size if the estimand is the population.
function regress(release, { response, scale, alpha, rows, ...asked }) {
  const own = release.part.get(response).responses[scale], problem = problemOf(release, own, asked);
  const linear = leastSquares(problem, rows), summary = scale === "odds" ? logOdds(problem, linear) : linear;
  const coefficients = problem.features.map(({ name, source }, i) => {
    const [low, high] = summary.interval(i, alpha), estimate = summary.estimates[i];
    const odds = scale === "odds" && source !== null
      ? { ratio: ratio(estimate), low: ratio(low), high: ratio(high) } : null;
    return {
      name, source, estimate, low, high, odds,
      error: summary.errors[i],
      p: summary.p[i],
      share: summary.share[i],
      boundDependent: summary.boundDependent[i],
      identified: [estimate, low, high].every(Number.isFinite),
    };
  });
  return { response, scale, alpha, rows, name: own.name, coefficients, summary, problem };
}

// The mean, or the probability of the second class, for a row of values by column: numbers, labels, true or false.
function predict(release, { scale, alpha, summary, problem }, values) {
  const row = Float64Array.from(problem.features, ({ source, indices }) => {
    if (source === null) return 1;
    const { kind, lower, upper } = release.part.get(source), value = values.get(source);
    if (kind === "categorical") return Number(indices.some((i) => release.encoded[i].levels[0][1] === value));
    return kind === "boolean" ? Number(value) : Math.min(Math.max(value, lower), upper);
  });
  if (scale === "odds") return { probability: 1 / (1 + Math.exp(-dot(row, summary.estimates))) };
  // The same tests, with the mean at the row in the place of the intercept.
  const functionals = [apply(transpose(problem.functionals), row), ...problem.functionals.slice(1)];
  const offset = [dot(row, problem.offset), ...problem.offset.slice(1)];
  const score = scoreOf({ noisy: problem.noisy, functionals, offset }, summary.score.rows, summary.score.pilot);
  const error = Math.sqrt(Math.max(quadratic(row, add(summary.noise, summary.sampling)), 0));
  return { mean: score.estimate[0], error, interval: score.interval(0, alpha) };
}

// Whether prediction is available: every part of the model is a single-valued column without missing values.
const canPredict = (release, { problem }) => problem.constant && release.raw === null &&
  problem.features.every(({ source }) => source === null || release.part.get(source).typed);
