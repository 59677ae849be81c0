// Models: least squares, or discriminant coefficients on the log-odds scale; and predictions.

// β = (b + e)/v from least squares b on a response of 0 and 1, by the delta method: v is its residual variance;
// e = h(π)v - 1/2 for the intercept, π the share of the second class, and 0 for all others (gaussmix.models.families).
function logOdds(problem, own) {
  const { toUser, constant, noisy } = problem, d = toUser.length;
  const first = Float64Array.from(toUser, (_, i) => Number(constant && i === 0));
  const { v, moved, noise, sampling, withB } = scaleOf(problem, own.fit);
  const identified = v > 0 && v >= SIGNAL * Math.sqrt(noise[0][0]), more = 1 + noisy.clippingBias ** 2;
  const estimates = own.estimates.map((b, i) => ((b || 0) + first[i] * (moved * v - 0.5)) / v);
  const toBeta = Array.from(estimates, (beta, i) => Float64Array.of(
    ...estimates.map((_, j) => Number(i === j) / v), -beta / v, first[i] / v,
  ));
  const carried = (ofB, cross, ofScale, factor) => {
    const upper = ofB.map((row, i) => [...row, ...cross[i].map((value) => factor * value)]);
    const lower = ofScale.map((row, i) => [...column(cross, i), ...row].map((value) => factor * value));
    return congruence(toBeta, [...upper, ...lower]);
  };
  const known = own.known.map((value) => value && identified);
  const ofNoise = carried(own.noise, withB, noise, more), ofSampling = carried(own.sampling, zeros(d, 2), sampling, 1);
  return { ...own, ...distribution(estimates, ofNoise, ofSampling, known) };
}

// v, the shift of the intercept, their covariances, and those with b.
function scaleOf({ noisy, toUser, constant }, { theta, inverse, residual, fitted, rows }) {
  const d = toUser.length, { moment, shape } = noisy, a = unexplained(theta);
  const y = Float64Array.from(a, (_, i) => Number(i === d));
  const one = y.map((_, i) => (i ? 0 : 0.5 / toUser[0][0])); // 1 in every row
  const forms = constant ? [-1, 1].map((side) => one.map((value, i) => (value + side * y[i]) / 2)) : [y];
  const counts = forms.map((form) => quadratic(form, moment)), n = Math.max(counts.reduce((x, other) => x + other), 1);
  const share = constant ? Math.min(Math.max(counts[1] / n, 0.5 / n), 1 - 0.5 / n) : 0.5, both = share * (1 - share);
  const v = residual / (4 * n), spent = fitted / (4 * n);
  const moved = Math.log(share / (1 - share)) + (1 - 2 * share) / (2 * both); // h
  const steep = 1 / both - (share ** -2 + (1 - share) ** -2) / 2; // h'
  const toV = [...forms.map(() => -v / n), 1 / (4 * n)], toShare = constant ? [-share / n, (1 - share) / n, 0] : [0, 0];
  const gradients = [toV, toV.map((value, i) => moved * value + v * steep * toShare[i])];
  const U = transpose([...forms, a]), NU = multiply(shape, U), aNU = apply(transpose(NU), a);
  const quadratics = map(multiply(transpose(U), NU), (value) => 2 * value ** 2);
  const outer = [[1, moved], [moved, moved ** 2]];
  const moves = map(multiply(multiply(toUser, inverse), NU.slice(0, d)), (value, _, k) => 2 * value * aNU[k]);
  const ofV = rows === null ? 0 : Math.max(v * (1 - 4 * v), 0) / rows;
  const ofShare = rows === null || !constant ? 0 : (v * steep) ** 2 * (both / rows);
  return {
    v, moved,
    noise: map(multiply(multiply(gradients, quadratics), transpose(gradients)), (value, i, j) => (
      value + ((2 * spent ** 2) / d) * outer[i][j]
    )),
    sampling: map(zeros(2, 2), (_, i, j) => ofV * outer[i][j] + (i && j ? ofShare : 0)),
    withB: multiply(moves, transpose(gradients)),
  };
}

// A model: coefficients and summary statistics. `rows` is the sample size if the estimand is the population.
function regress(release, { response, scale, alpha, rows, ...asked }) {
  const own = release.part.get(response).responses[scale], problem = problemOf(release, own, asked);
  const linear = leastSquares(release, problem, rows), summary = scale === "odds" ? logOdds(problem, linear) : linear;
  const coefficients = problem.features.map(({ name, source }, i) => {
    const [low, high] = summary.interval(i, alpha), estimate = summary.estimates[i];
    const odds = scale === "odds" && source !== null
      ? { ratio: Math.exp(estimate), low: Math.exp(low), high: Math.exp(high) } : null;
    const reason = summary.known[i] ? null : summary.reasons.get(i) ?? "its scale is not clearly above 0";
    return {
      name, source, estimate, low, high, odds, reason,
      error: summary.errors[i],
      p: summary.p[i],
      share: summary.share[i],
      standsFor: summary.standsFor.get(name) || [],
      identified: summary.known[i],
    };
  });
  return { response, scale, alpha, rows, name: own.name, coefficients, summary, problem };
}

// The mean, or the probability of the second class, for a row of values by column: numbers, labels, true or false.
// Coefficients that are not identified count as 0.
function predict(release, { scale, alpha, summary, problem }, values) {
  const row = Float64Array.from(problem.features, ({ source, indices }, i) => {
    if (source === null) return 1;
    const { kind, lower, upper } = release.part.get(source), value = values.get(source);
    if (kind === "numeric" && Number.isNaN(value)) return NaN;
    if (!summary.known[i]) return 0;
    if (kind === "categorical") return Number(indices.some((index) => release.encoded[index].levels[0][1] === value));
    return kind === "boolean" ? Number(value) : Math.min(Math.max(value, lower), upper);
  });
  const mean = dot(row, summary.estimates.map((value, i) => (problem.features[i].source === null ? value : value || 0)));
  if (scale === "odds") return { probability: 1 / (1 + Math.exp(-mean)) };
  const error = Number.isNaN(mean) ? NaN : Math.sqrt(Math.max(quadratic(row, summary.covariance), 0));
  const half = critical(alpha) * error;
  return { mean, error, interval: [mean - half, mean + half] };
}

// Whether prediction is available: every part of the model is a single-valued column without missing values.
const canPredict = (release, { problem }) => problem.constant && release.raw === null &&
  problem.features.every(({ source }) => source === null || release.part.get(source).typed);
