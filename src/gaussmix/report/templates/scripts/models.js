// Models: least squares, or generalised linear models near maximum likelihood (gaussmix.models.likelihood); and predictions.
const LEAST_KEPT = 0.8, LEAST_DRAWN = 16, SINGULAR = 1e-9, MANY_COLUMNS = 128, LARGE = 1 / 3, ALLOWANCE = 0.5;

const expit = (eta) => (eta >= 0 ? 1 / (1 + Math.exp(-eta)) : Math.exp(eta) / (1 + Math.exp(eta)));
const cut = (eta) => Math.exp(Math.min(eta, 50));

// The mean of a response, its derivatives, an antiderivative, the link, and the standard deviation of the prior.
const FAMILIES = {
  logit: {
    ofClasses: true, unit: 3, ratio: "odds ratio", inverse: expit,
    link: (mu) => Math.log(mu / (1 - mu)),
    derivative: (eta) => expit(eta) * expit(-eta),
    second: (eta) => expit(eta) * expit(-eta) * (1 - 2 * expit(eta)),
    area: (eta) => Math.max(eta, 0) + Math.log1p(Math.exp(-Math.abs(eta))),
    variance: (mu) => mu * (1 - mu),
  },
  poisson: {
    ofClasses: false, unit: 3, ratio: "rate ratio", inverse: cut, link: Math.log, derivative: cut, second: cut, area: cut,
    variance: (mu) => mu,
  },
};

// Places of the entries of X that are not 0, row after row, and where the rows begin: levels are 0 in most rows.
const sparse = new WeakMap();
function entriesOf(X, d) {
  if (!sparse.has(X)) {
    const n = X.length / d, starts = new Int32Array(n + 1), places = new Int32Array(X.length);
    let many = 0;
    for (let r = 0; r < n; r++) {
      for (let i = 0; i < d; i++) if (X[r * d + i] !== 0) places[many++] = i;
      starts[r + 1] = many;
    }
    sparse.set(X, { starts, places });
  }
  return sparse.get(X);
}

// Σ w x xᵀ, for rows of X one after the other in one array.
function weightedMoments(X, weights, d) {
  const flat = new Float64Array(d * d), n = weights.length, { starts, places } = entriesOf(X, d);
  for (let r = 0; r < n; r++) {
    const at = r * d, w = weights[r], end = starts[r + 1];
    for (let a = starts[r]; a < end; a++) {
      const i = places[a], factor = w * X[at + i], row = i * d;
      for (let b = a; b < end; b++) flat[row + places[b]] += factor * X[at + places[b]];
    }
  }
  return map(zeros(d, d), (_, i, j) => flat[Math.min(i, j) * d + Math.max(i, j)]);
}

function timesRows(X, values, d) { // Σ value x
  const found = new Float64Array(d);
  for (let r = 0, at = 0; r < values.length; r++) {
    const value = values[r];
    for (let i = 0; i < d; i++, at++) found[i] += value * X[at];
  }
  return found;
}

function linearPredictors(X, theta) {
  const d = theta.length, found = new Float64Array(X.length / d);
  for (let r = 0; r < found.length; r++) {
    let sum = 0;
    for (let i = 0, at = r * d; i < d; i++, at++) sum += X[at] * theta[i];
    found[r] = sum;
  }
  return found;
}

// Σ x h(xᵀθ)/n + penalty·θ = wanted by Newton's method with halving: the minimum of a convex function.
function solveEquation(X, wanted, family, penalty, { theta: start, H: known }) {
  const d = wanted.length, n = X.length / d, column_ = (values) => Array.from(values, (value) => [value]);
  const objective = (theta) => {
    const eta = linearPredictors(X, theta);
    return [eta.reduce((sum, value) => sum + family.area(value), 0) / n - dot(theta, wanted) +
      theta.reduce((sum, value, i) => sum + penalty[i] * value * value, 0) / 2, eta];
  };
  let theta = start, [value, eta] = objective(theta), converged = false, H = known;
  for (let turn = 0; turn < 60 && !converged; turn++) {
    const means = timesRows(X, eta.map((own) => family.inverse(own) / n), d);
    const gradient = means.map((own, i) => own - wanted[i] + penalty[i] * theta[i]);
    const unit = penalty.map((own, i) => 1 / Math.sqrt(Math.max(H[i][i] + own, 1e-300)));
    const scaled = map(H, (own, i, j) => (own + (i === j ? penalty[i] : 0)) * unit[i] * unit[j] + (i === j ? 1e-12 : 0));
    const step = column(solve(scaled, column_(gradient.map((own, i) => unit[i] * own))), 0).map((own, i) => -unit[i] * own);
    const fall = -dot(gradient, step);
    let length = 1, next, nextEta, moved;
    for (;;) {
      moved = theta.map((own, i) => own + length * step[i]);
      [next, nextEta] = objective(moved);
      if (next <= value - 1e-4 * length * fall || fall < 1e-9 || length < 1e-6) break;
      length /= 2;
    }
    [theta, value, eta] = [moved, next, nextEta];
    H = weightedMoments(X, eta.map((own) => family.derivative(own) / n), d);
    converged = fall < 1e-13;
  }
  return { theta, H, eta, converged };
}

// The posterior mode, with scores of the variances `noise`; the penalty has H at the solution.
function solveNoisy(X, energy, wanted, family, noise, prior, start) {
  const d = wanted.length, n = X.length / d;
  const weights = linearPredictors(X, start).map((eta) => family.derivative(eta) / n), H = weightedMoments(X, weights, d);
  const first = diagonal(H), least = energy.map((value) => Math.max(value, 1e-300));
  let h = first.map((value, i) => Math.max(value, 1e-12 * least[i])), found = { theta: start, H };
  for (let turn = 0; turn < 6; turn++) {
    const penalty = noise.map((value, i) => (
      energy[i] <= 1e-300 ? 1 : value / (Math.max(h[i], 1e-3 * first[i]) * prior[i] ** 2) + 1e-10 * least[i]
    ));
    found = solveEquation(X, wanted, family, penalty, found);
    const now = diagonal(found.H);
    const moved = now.map((value, i) => Math.abs(Math.log(Math.max(value, 1e-9 * least[i]) / Math.max(h[i], 1e-9 * least[i]))));
    if (Math.max(...moved) < 0.05) break;
    h = h.map((value, i) => Math.sqrt(value * Math.max(now[i], 1e-12 * least[i])));
  }
  const share = first.map((value, i) => value ** 2 / Math.max(value ** 2 + noise[i] / prior[i] ** 2, 1e-300));
  return { ...found, share };
}

const NEARLY_SEPARATED = 0.1;

// A generalised linear model from least squares `own` of its response, on drawn rows.
function likelihood(release, problem, response, own, family, rows) {
  const { features, toUser } = problem, { kept, noise: ofB, theta: b } = own.fit, d = kept.length;
  const sources = [...new Set(features.map(({ source }) => source).filter((source) => source !== null))];
  const one = release.encoded[release.intercept].scale, indicator = combination(release, response.vector.map(([i, value]) => [i, response.scale * value]));
  indicator[release.intercept] += response.centre * one;
  const covariance = kept.map((i) => Float64Array.from(kept, (j) => ofB[i][j] * response.scale ** 2));
  const coefficients = kept.map((i) => b[i] * response.scale + (i === 0 ? response.centre * one : 0));
  const prior = kept.map((i) => (features[i].source === null ? Infinity : family.unit / release.part.get(features[i].source).weight));
  const wide = sources.reduce((sum, name) => sum + release.part.get(name).indices.length, 0) > MANY_COLUMNS;
  const solved = (shaped, points, numbersFirst = false) => {
    const R = drawRows(release, { sources, response: family.ofClasses && !numbersFirst ? indicator : null, shaped, numbersFirst, points });
    const X = new Float64Array(points * d);
    kept.forEach((place, k) => {
      for (const index of features[place].indices) {
        const source = R.get(index);
        for (let n = 0; n < points; n++) X[n * d + k] += source[n];
      }
    });
    const cross = weightedMoments(X, new Float64Array(points).fill(1 / points), d), wanted = apply(cross, coefficients);
    const start = new Float64Array(d), mean = Math.max(wanted[0] / X[0], 1e-4);
    start[0] = family.link(family.ofClasses ? Math.min(mean, 1 - 1e-4) : mean) / X[0];
    const noisyMean = wanted[0] / X[0];
    return { X, cross, noisyMean, ...solveNoisy(X, diagonal(cross), wanted, family, diagonal(congruence(cross, covariance)), prior, start) };
  };
  const { shaped, sobol } = release, main = solved(shaped, wide ? sobol.fewer : sobol.points), { X, theta, eta } = main;
  const n = eta.length, drawn = kept.map((_, i) => { let many = 0; for (let r = 0; r < n; r++) many += Number(X[r * d + i] !== 0); return many; });
  const isMean = main.noisyMean > 0 && (main.noisyMean < 1 || !family.ofClasses); // otherwise no θ has the noisy mean
  const unknown = kept.map((_, i) => !isMean || (i > 0 && (main.share[i] < LEAST_KEPT || drawn[i] < LEAST_DRAWN)));
  const known = Array.from(unknown.keys()).filter((i) => !unknown[i]), unit = diagonal(main.cross).map((value) => 1 / Math.sqrt(value));
  const scaled = map(main.H, (value, i, j) => value * unit[i] * unit[j] + (i === j ? SINGULAR : 0));
  const inner = known.length ? solve(chosen(scaled, known), identity(known.length)) : [], inverse = zeros(d, d);
  known.forEach((i, a) => known.forEach((j, c) => { inverse[i][j] = unit[i] * unit[j] * inner[a][c]; }));
  const J = multiply(inverse, main.cross), noise = congruence(J, covariance);
  const mu = eta.map(family.inverse), moment = weightedMoments(X, mu.map((value) => family.variance(value) / n), d);
  const factor = family.ofClasses ? 1 : dispersionOf(release, indicator, mu, family), ofRow = congruence(inverse, moment);
  const sampling = rows === null ? zeros(d, d) : map(ofRow, (value) => (factor * value) / rows);
  const numbers = sources.some((name) => !["categorical", "boolean", "missing"].includes(release.part.get(name).kind));
  const count = Math.max(rowsOf(release, [release.intercept]).count, 1);
  const allowance = numbers || sources.length > 1 ? ALLOWANCE ** 2 : 0; // for dependence among three and more columns
  const assumed = map(ofRow, (value) => (allowance * factor * value) / count);
  if (numbers) {
    const same = solved(shaped, sobol.fewer).theta, others = [solved(!shaped, sobol.fewer), solved(shaped, sobol.fewer, true)];
    for (const { theta: other } of others) for (let i = 0; i < d; i++) for (let j = 0; j < d; j++) assumed[i][j] += (other[i] - same[i]) * (other[j] - same[j]);
  }
  const T = toUser.map((row) => Float64Array.from(kept, (i) => row[i] / response.scale));
  const lost = features.map((_, i) => {
    const place = kept.indexOf(i);
    return place < 0 || unknown[place] || (i > 0 && T[i].some((value, k) => value !== 0 && unknown[k]));
  });
  const user = (A) => congruence(T, A), reasons = new Map(own.reasons);
  lost.forEach((value, i) => { if (value && !reasons.has(i)) reasons.set(i, "too few events among its rows, or the model nearly separates the response"); });
  const found = distribution(apply(T, theta), user(noise), user(sampling), lost.map((value) => !value), user(assumed),
    curvatures({ X, eta, T, noise, inverse, family }));
  const separating = family.ofClasses ? separatingColumns({ X, theta, eta, family }, kept.map((i) => features[i].source), main.converged) : [];
  const [more, itsError] = gain({ X, theta, unknown, family, noise, prior }, response.mean), dominated = unknown[0] || !(more > itsError);
  return { ...own, ...found, reasons, dominated, converged: main.converged, separating };
}

// The log-likelihood per row in excess of that of a constant of this mean, and its standard error (Fit.gain of the library).
function gain({ X, theta: solved, unknown, family, noise, prior }, mean) {
  const d = noise.length, theta = Float64Array.from(solved, (value, i) => (unknown[i] ? 0 : value));
  const eta = linearPredictors(X, theta), n = eta.length, constant = family.link(mean);
  const average = (own) => eta.reduce((sum, value) => sum + own(value), 0) / n, averages = timesRows(X, new Float64Array(n).fill(1 / n), d);
  const own = average((value) => family.inverse(value) * value - family.area(value)) + (mean - average(family.inverse)) * dot(averages, theta);
  const H = weightedMoments(X, eta.map((value) => family.derivative(value) / n), d), along = Float64Array.from(theta);
  along[0] = -(dot(averages, theta) - averages[0] * theta[0]) / averages[0]; // the mean of y has no part
  const root = prior.map((value) => (family.ofClasses ? 1 / value : 0)); // the prior limits moves where classes are nearly separated
  const inner = map(noise, (value, i, j) => value * root[i] * root[j] + (i === j ? 1 : 0));
  const limited = multiply(map(noise, (value, _, j) => value * root[j]), solve(inner, map(noise, (value, i) => value * root[i])));
  const trace = H.reduce((sum, row, i) => sum + dot(row, noise[i].map((value, j) => value - limited[i][j])), 0);
  return [own - (mean * constant - family.area(constant)) - trace, Math.sqrt(Math.max(quadratic(apply(H, along), noise), 0))];
}

// Columns that nearly separate two classes; none unless the mean of μ(1 - μ) is less than a tenth of that of a constant μ.
// The linear predictor is a sum over columns: those with at least half of the largest standard deviation are named.
function separatingColumns({ X, theta, eta, family }, sources, converged) {
  const n = eta.length, d = theta.length, mean = (values) => values.reduce((sum, value) => sum + value, 0) / n;
  const mu = eta.map(family.inverse), whole = family.variance(mean(mu));
  if (converged && mean(mu.map(family.variance)) >= NEARLY_SEPARATED * whole) return [];
  const deviations = new Map(), named = new Set(sources.filter((source) => source !== null));
  for (const name of named) {
    const part = Float64Array.from({ length: n }, (_, r) => sources.reduce((sum, own, i) => sum + (own === name ? X[r * d + i] * theta[i] : 0), 0));
    const centre = mean(part);
    deviations.set(name, Math.sqrt(mean(part.map((value) => (value - centre) ** 2))));
  }
  const largest = Math.max(0, ...deviations.values());
  return [...deviations].filter(([, value]) => value > 0 && value >= largest / 2).map(([name]) => name);
}

// κ of every coefficient: β moves along its direction by log(1 + κst)/κ.
function curvatures({ X, eta, T, noise, inverse, family }) {
  const d = inverse.length, n = eta.length, bends = eta.map((value) => family.second(value) / n);
  const moves = multiply(T, noise), turned = multiply(T, inverse);
  return Float64Array.from(T, (row, j) => {
    const variance = Math.max(dot(moves[j], row), 1e-300), along = linearPredictors(X, moves[j]), across = linearPredictors(X, turned[j]);
    let sum = 0;
    for (let r = 0; r < n; r++) sum += bends[r] * along[r] * along[r] * across[r];
    return d ? sum / variance ** 2 : 0;
  });
}

// E(y - μ)² over E Var(y | x), at least 1.
function dispersionOf(release, y, mu, family) {
  const { moment } = release.noisy, one = combination(release, [[release.intercept, release.encoded[release.intercept].scale]]);
  const square = quadratic(y, moment) / Math.max(quadratic(one, moment), 1), n = mu.length;
  const mean = (values) => values.reduce((x, value) => x + value, 0) / n;
  return Math.max((square - mean(mu.map((value) => value * value))) / Math.max(mean(mu.map(family.variance)), 1e-300), 1);
}

// A model: coefficients and summary statistics. `rows` is the sample size if the estimand is the population.
function regress(release, { response, scale, alpha, rows, ...asked }) {
  const own = release.part.get(response).responses[scale], problem = problemOf(release, own, asked);
  const linear = leastSquares(release, problem, rows), family = FAMILIES[scale];
  const summary = family ? likelihood(release, problem, own, linear, family, rows) : linear;
  const coefficients = problem.features.map(({ name, source }, i) => {
    const [low, high] = summary.interval(i, alpha), estimate = summary.estimates[i];
    const ratio = family && source !== null
      ? { ratio: Math.exp(estimate), low: Math.exp(low), high: Math.exp(high) } : null;
    const reason = summary.known[i] ? null : summary.reasons.get(i);
    return {
      name, source, estimate, low, high, ratio, reason,
      error: summary.errors[i],
      p: summary.p[i],
      share: summary.share[i],
      assumed: summary.assumed ? summary.assumed[i] : null,
      standsFor: summary.standsFor.get(name) || [],
      identified: summary.known[i],
    };
  });
  return { response, scale, alpha, rows, name: own.name, coefficients, summary, problem };
}

// The mean, which is a probability for classes, for a row of values by column: numbers, labels, true or false.
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
  const error = Number.isNaN(mean) ? NaN : Math.sqrt(Math.max(quadratic(row, map(summary.covariance, (value) => value || 0)), 0));
  const half = critical(alpha) * error, inverse = FAMILIES[scale]?.inverse ?? ((value) => value), slope = FAMILIES[scale]?.derivative ?? (() => 1);
  return { mean: inverse(mean), error: slope(mean) * error, interval: [inverse(mean - half), inverse(mean + half)] };
}

// Whether prediction is available: every part of the model is a single-valued column without missing values.
const canPredict = (release, { problem }) => problem.constant && release.raw === null &&
  problem.features.every(({ source }) => source === null || release.part.get(source).typed);
