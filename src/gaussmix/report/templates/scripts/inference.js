// Least squares on the columns that a release identifies, and its distribution: gaussmix.models.inference.
const SIGNAL = 3, ENOUGH = 5, RELATED = 0.3, NAMED = 3;

const unexplained = (theta) => Float64Array.of(...Array.from(theta, (value) => -value), 1); // a = (-θ, 1)

// N_xx aᵀNa + (Na)_x(Na)_xᵀ, the covariance of the score that the noise causes.
function scoreCovariance(shape, theta) {
  const d = theta.length, a = unexplained(theta), c = apply(shape, a), omega = dot(a, c);
  return map(leading(shape, d), (value, i, j) => omega * value + c[i] * c[j]);
}

// Leave out, one at a time, the column with the largest part in the weakest direction of M u = h N u, until h/√2 is at
// least SIGNAL; never the intercept, unless it is alone. Terms that contain a column are left out with it.
function identifiedColumns({ moment, shape }, toUser, constant) {
  const d = moment.length - 1, scale = diagonal(shape).map((value) => 1 / Math.sqrt(value));
  const metric = (A) => map(leading(A, d), (value, i, j) => value * scale[i] * scale[j]);
  const M = metric(moment), N = map(metric(shape), (value, i, j) => value + (i === j ? 1e-13 : 0));
  let kept = Array.from(M.keys());
  const leftOut = [];
  while (kept.length) {
    const { value, vector } = weakest(chosen(M, kept), chosen(N, kept));
    if (value / Math.SQRT2 >= SIGNAL) break;
    const parts = vector.map((part, i) => (constant && kept.length > 1 && i === 0 ? 0 : Math.abs(part)));
    const worst = kept[parts.indexOf(Math.max(...parts))];
    const gone = [worst, ...kept.filter((i) => i !== worst && toUser[worst][i] !== 0)];
    leftOut.push(...gone);
    kept = kept.filter((i) => !gone.includes(i));
  }
  return { kept, leftOut };
}

// Least squares on some columns, in encoded units; 0 for the others. `rows` is the sample size for the population.
function onColumns({ moment, shape, clippingBias }, kept, rows = null) {
  const d = moment.length - 1, inverse = zeros(d, d);
  const found = solve(chosen(moment, kept), identity(kept.length));
  kept.forEach((i, k) => kept.forEach((j, l) => { inverse[i][j] = (found[k][l] + found[l][k]) / 2; }));
  const theta = apply(inverse, column(moment, d).slice(0, d)), plain = quadratic(unexplained(theta), moment);
  const spread = congruence(inverse, scoreCovariance(shape, theta)), fitted = total(leading(moment, d), spread);
  const variance = rows === null ? 0 : Math.max(plain + fitted, 0) / Math.max(rows - kept.length, 1);
  return {
    kept, theta, inverse, rows, fitted,
    noise: map(spread, (value) => (1 + clippingBias ** 2) * value),
    sampling: map(inverse, (value) => variance * value),
    residual: plain + fitted, // fitting removes a part of the noise
    risk: plain + 2 * fitted,
  };
}

// Kept columns whose coefficients also stand for one that was left out.
function relatedColumns({ moment, shape }, fit, left, reach) {
  const d = fit.theta.length, order = [...Array.from(fit.theta.keys()), left];
  const delta = apply(fit.inverse, column(moment, left).slice(0, d));
  const errors = diagonal(congruence(fit.inverse, scoreCovariance(chosen(shape, order), delta)));
  const own = diagonal(add(fit.noise, fit.sampling));
  return fit.kept.filter((j) => RELATED * reach * Math.abs(delta[j]) > Math.sqrt(Math.max(own[j], 0)) / 2 &&
    Math.abs(delta[j]) > 2 * Math.sqrt(Math.max(errors[j], 0)));
}

// Least squares in original units, R², columns left out with reasons, and coefficients that stand for them.
function leastSquares(release, problem, rows) {
  const { noisy, toUser, offset, constant, features, reach } = problem;
  const { kept, leftOut } = identifiedColumns(noisy, toUser, constant), fit = onColumns(noisy, kept, rows);
  const mean = onColumns(noisy, constant && noisy.moment[0][0] > 0 ? [0] : []);
  const rsquared = mean.residual > 0 ? Math.min(Math.max(1 - fit.residual / mean.residual, 0), 1) : 0, reasons = new Map(), standsFor = new Map();
  for (const j of leftOut) {
    const { name, column: own, indices } = features[j];
    const related = relatedColumns(noisy, fit, j, reach[j]).map((k) => features[k].name);
    const beside = related.filter((other) => other !== INTERCEPT);
    const { count, error } = own.kind === "level" ? rowsOf(release, indices) : { count: Infinity, error: 0 };
    const about = [Math.max(count, 0), error].map((value) => value.toFixed(value >= 10 ? 0 : 1));
    reasons.set(j, count < ENOUGH * error ? `total row weight about ${about[0]} (SE ${about[1]}): counted with the reference level`
      : `too little signal${beside.length ? ` after adjusting for ${beside.slice(0, NAMED).join(", ")}` : ""}`);
    for (const other of beside) standsFor.set(other, [...(standsFor.get(other) || []), name]);
  }
  return {
    fit, rsquared, reasons, standsFor,
    dominated: !(kept.length && mean.residual > 0 && fit.risk <= (1 + 1e-9) * mean.risk), // predictions do not beat the mean
    ...distribution(apply(toUser, fit.theta).map((value, i) => value + offset[i]), congruence(toUser, fit.noise),
      congruence(toUser, fit.sampling), features.map((_, i) => kept.includes(i))),
  };
}

// The distribution of coefficients, normal or bent by the curvatures κ; NaN for those that are not identified.
function distribution(estimates, noise, sampling, known, assumed = null, curvature = null) {
  const covariance = assumed ? add(add(noise, sampling), assumed) : add(noise, sampling);
  const either = (A) => map(A, (value, i, j) => (known[i] && known[j] ? value : NaN));
  const variance = diagonal(either(covariance)).map((value) => Math.max(value, 0));
  const errors = variance.map(Math.sqrt), found = estimates.map((value, i) => (known[i] ? value : NaN));
  const bent = (i) => (curvature && Math.abs(curvature[i]) > 1e-6 ? curvature[i] : 0);
  const distance = (i) => (bent(i) ? -Math.expm1(-bent(i) * found[i]) / bent(i) : found[i]);
  return {
    estimates: found, errors, known, noise, sampling, covariance,
    assumed: assumed && diagonal(either(assumed)).map(Math.sqrt),
    share: diagonal(either(noise)).map((value, i) => value / variance[i]),
    p: found.map((value, i) => (value === 0 && errors[i] === 0 ? 1 : 2 * cdf(-Math.abs(distance(i)) / errors[i]))),
    interval: (i, alpha) => [-1, 1].map((side) => {
      const half = side * critical(alpha) * errors[i];
      return found[i] + (bent(i) ? Math.log(Math.max(1 + bent(i) * half, 0)) / bent(i) : half);
    }),
  };
}
