// The score test of regression coefficients θ, |θ_j| ≤ 1 in units of their bounds: gaussmix.models.weights and score.
const KAPPAS = [1, 4, 16, 64, 256, 4096, 65536], HARDLY_LONGER = 1.02, LEVEL = 0.05;
const PRIOR = 3, STRONG = 10, ROUNDS = 3, ROUNDING = 1e-13, IDENTIFIED = 0.05;

const unexplained = (theta) => Float64Array.of(...Array.from(theta, (value) => -value), 1); // a = (-θ, 1)
const columnSums = (A, B) => A[0].map((_, j) => A.reduce((sum, row, i) => sum + row[j] * B[i][j], 0)); // Σ_i A_ij B_ij

// s²M_xx, the sampling variance of n rows; directions of M_xx that are negative due to noise are set to 0.
function samplingCovariance(noisy, theta, rows) {
  const d = theta.length;
  if (rows === null) return zeros(d, d);
  const variance = Math.max(quadratic(unexplained(theta), noisy.moment), 0) / Math.max(rows - d, 1);
  const scale = diagonal(leading(noisy.shape, d)).map((value) => Math.sqrt(Math.max(value, 1e-300)));
  const { values, V } = eigen(map(leading(noisy.moment, d), (value, i, j) => value / (scale[i] * scale[j])));
  return gram(map(V, (value, i, j) => scale[j] * value * Math.sqrt(variance * Math.max(values[i], 0))));
}

// N_xx aᵀNa + (Na)_x(Na)_xᵀ, averaged over a distribution of θ with a mean and a covariance.
function scoreCovariance(noisy, theta, covariance) {
  const d = theta.length, a = unexplained(theta), N = leading(noisy.shape, d);
  const c = apply(noisy.shape, a), omega = quadratic(a, noisy.shape) + (covariance ? total(N, covariance) : 0);
  const more = covariance ? multiply(multiply(N, covariance), N) : zeros(d, d);
  return map(more, (value, i, j) => omega * N[i][j] + c[i] * c[j] + value);
}

// H with HVHᵀ = I; eigenvalues below rounding error are raised to its level.
function whitening(covariance) {
  const scale = diagonal(covariance).map((value) => Math.sqrt(Math.max(value, 1e-300)));
  const { values, V } = eigen(map(covariance, (value, i, j) => value / (scale[i] * scale[j])));
  return map(V, (value, i, j) => value / Math.sqrt(Math.max(values[i], ROUNDING * values[0])) / scale[j]);
}

// The joint normal approximation of all coefficients; the information is reduced by the contribution of the noise.
function pilotOf(noisy, rows) {
  const d = noisy.moment.length - 1;
  let theta = new Float64Array(d), covariance = zeros(d, d), V, H, sampling, Bt, signal;
  for (let round = 0; round < ROUNDS; round++) {
    sampling = samplingCovariance(noisy, theta, rows);
    V = add(scoreCovariance(noisy, theta, covariance), sampling);
    H = whitening(V);
    const HM = multiply(H, noisy.moment.slice(0, d)), HQ = multiply(H, noisy.shape.slice(0, d));
    const trace = total(leading(HQ, d), H), ofNoise = gram(HQ);
    const found = map(gram(HM), (value, i, j) => value - (ofNoise[i][j] + trace * noisy.shape[i][j]));
    const { values, V: vectors } = eigen(leading(found, d));
    Bt = vectors;
    signal = values.map((value) => Math.sqrt(Math.max(value, 0)));
    covariance = gram(map(Bt, (value, i) => value / Math.sqrt(signal[i] ** 2 + PRIOR)));
    theta = apply(covariance, column(found, d));
  }
  const { U, values, R } = singular(multiply(H, leading(noisy.moment, d)));
  return { theta, covariance, V, H, sampling, Bt, signal, R, half: transpose(multiply(U, H)), values };
}

// Distributions of all coefficients given one functional, one column per functional.
function conditional({ theta, covariance, H, sampling, Bt, signal }, noisy, functionals) {
  const d = theta.length, B = transpose(Bt), ofFeatures = leading(noisy.shape, d);
  const Q = congruence(Bt, ofFeatures), X = multiply(Bt, transpose(functionals));
  const atMean = quadratic(unexplained(theta), noisy.shape), whole = atMean + total(ofFeatures, covariance);
  const constant = total(multiply(H, sampling), H) / d; // share of V that is not noise
  const strong = signal.map((value) => value ** 2 / (value ** 2 + STRONG ** 2) + 1e-4);
  let omega = new Float64Array(d).fill(whole), values, moves, along, own;
  for (let round = 0; round < ROUNDS; round++) {
    const fall = omega.map((value) => constant + (1 - constant) * Math.min(value / whole, 1));
    values = map(X, (_, i, j) => 1 / (signal[i] ** 2 / fall[j] + PRIOR));
    const turned = map(X, (value, i, j) => values[i][j] * strong[i] * value), sums = columnSums(X, turned);
    moves = map(turned, (value, i, j) => value / sums[j]);
    along = map(X, (value, i, j) => values[i][j] * value);
    own = columnSums(X, along);
    const Qm = multiply(Q, moves), crossed = columnSums(Qm, along), squared = columnSums(Qm, moves);
    const spread = apply(transpose(values), diagonal(Q));
    omega = omega.map((_, j) => atMean + spread[j] - 2 * crossed[j] + own[j] * squared[j]);
  }
  return { moves: multiply(B, moves), along: multiply(B, along), own, values, omega };
}

// The dependence of wᵀM_xx θ on ψ = ℓᵀθ, and its largest possible change by the other coefficients.
function slopesAndBiases(w, moment, functionals) {
  const e = multiply(transpose(w), moment), slope = diagonal(e).map((value, i) => value / functionals[i][i]);
  const rest = map(e, (value, i, j) => (i === j ? 0 : Math.abs(value - slope[i] * functionals[i][j])));
  return { slope, bias: Float64Array.from(rest, (row) => row.reduce((sum, value) => sum + value, 0)) };
}

// Weights of every test as columns, each with the κ of the shortest expected interval; exact: κ = ∞.
function weightsOf({ V, R, half, values }, moment, functionals) {
  const inBasis = multiply(R, transpose(functionals));
  const weights = (kappa) => multiply(half, map(inBasis, (value, i) => {
    const s = Math.max(values[i], ROUNDING * values[0]);
    return value * (s / (s ** 2 + 1 / kappa));
  }));
  const lengths = (w, withBias) => {
    const { slope, bias } = slopesAndBiases(w, moment, functionals);
    return columnSums(w, multiply(V, w)).map((variance, j) => {
      const deviation = Math.sqrt(variance), ratio = withBias ? bias[j] / deviation : 0;
      const length = (critical(LEVEL, ratio) * deviation) / Math.abs(slope[j]);
      return Number.isFinite(length) ? length : Infinity;
    });
  };
  const w = weights(Infinity), exact = functionals.map(() => true);
  const shortest = lengths(w, false).map((length) => length / HARDLY_LONGER);
  for (const kappa of KAPPAS) {
    const others = weights(kappa);
    lengths(others, true).forEach((length, j) => {
      if (!(length < shortest[j])) return;
      shortest[j] = length;
      exact[j] = false;
      w.forEach((row, i) => { row[j] = others[i][j]; });
    });
  }
  return { w, exact };
}

// Tests of functionals of the coefficients, the i-th of which involves the i-th coefficient; `rows` is the sample size
// if the estimand is the population.
function scoreOf({ noisy, functionals, offset }, rows, pilot = pilotOf(noisy, rows)) {
  const d = functionals.length, moment = leading(noisy.moment, d), { w, exact } = weightsOf(pilot, moment, functionals);
  const level = apply(transpose(w), column(noisy.moment, d).slice(0, d)), middle = apply(functionals, pilot.theta);
  const { slope, bias: most } = slopesAndBiases(w, moment, functionals);
  const bias = most.map((value, j) => (exact[j] ? 0 : value));
  const variance = variances(noisy, functionals, pilot, w);
  const estimate = level.map((value, j) => value / slope[j] + offset[j]);
  const atInfinity = slope.map((value, j) => {
    const p = 2 * cdf(-Math.abs(value) / Math.sqrt(variance.square[j]));
    return Number.isNaN(p) ? 1 : p;
  });
  const p = (j, value) => {
    const psi = value - offset[j], t = psi - middle[j];
    const square = variance.constant[j] + t * (variance.linear[j] + t * variance.square[j]);
    const deviation = Math.sqrt(Math.max(square, 1e-300));
    const distance = Math.abs(level[j] - psi * slope[j]) / deviation, moved = bias[j] / deviation;
    return Math.min(cdf(moved - distance) + cdf(-moved - distance), 1);
  };
  // Both ends of the accepted values of one coefficient; infinite if they are unbounded.
  const interval = (j, alpha) => {
    if (!(atInfinity[j] < alpha)) return [-Infinity, Infinity];
    const unit = (Math.sqrt(variance.constant[j]) + bias[j]) / Math.abs(slope[j]);
    return [-1, 1].map((side) => {
      const inside = (steps) => p(j, estimate[j] + side * steps * unit) >= alpha;
      let low = 0, high = 4;
      while (inside(high) && high < 1e60) [low, high] = [high, 2 * high];
      for (let k = 0; k < 60; k++) {
        const half = (low + high) / 2;
        if (inside(half)) low = half;
        else high = half;
      }
      return estimate[j] + side * low * unit;
    });
  };
  const pOfHull = (j, value) => Math.max(p(j, value), atInfinity[j]); // rejects if the interval excludes the value
  return { noisy, functionals, offset, rows, pilot, w, slope, bias, variance, estimate, atInfinity, interval, pOfHull };
}

// Coefficients of wᵀVw in powers of ψ - ψ̂, with ψ̂ from the pilot.
function variances(noisy, functionals, pilot, w) {
  const d = functionals.length, a = unexplained(pilot.theta), wt = transpose(w);
  const { moves: r, along: ofPsi, own, values, omega } = conditional(pilot, noisy, functionals);
  const N = leading(noisy.shape, d), Nw = multiply(N, w), stretch = columnSums(w, Nw);
  const along = apply(wt, apply(noisy.shape, a).slice(0, d));
  const turn = columnSums(Nw, r), crossed = columnSums(Nw, ofPsi);
  const whole = columnSums(map(multiply(pilot.Bt, Nw), (value) => value ** 2), values);
  const left = whole.map((value, j) => Math.max(value - 2 * turn[j] * crossed[j] + turn[j] ** 2 * own[j], 0));
  const moved = apply(transpose(r), apply(noisy.shape, a).slice(0, d)), squared = columnSums(r, multiply(N, r));
  const sampled = columnSums(w, multiply(pilot.sampling, w));
  return {
    constant: stretch.map((value, j) => value * omega[j] + along[j] ** 2 + left[j] + sampled[j]),
    linear: stretch.map((value, j) => -2 * (value * moved[j] + along[j] * turn[j])),
    square: stretch.map((value, j) => value * squared[j] + turn[j] ** 2),
  };
}

// Covariances of the estimates, evaluated at the estimates: from the noise and from sampling. For a coefficient that is
// not identified the mean of the pilot is used.
function covariances({ noisy, functionals, offset, pilot, w, slope, rows, estimate, atInfinity }) {
  const unknown = functionals.map((row) => row.some((value, j) => value !== 0 && atInfinity[j] >= IDENTIFIED));
  const found = column(solve(functionals, Array.from(estimate, (value, j) => [value - offset[j]])), 0);
  const theta = found.map((value, j) => (
    Math.min(Math.max(unknown[j] || !Number.isFinite(value) ? pilot.theta[j] : value, -1), 1)
  ));
  const scaled = transpose(map(w, (value, i, j) => value / slope[j]));
  const within = (V) => multiply(multiply(scaled, V), transpose(scaled));
  return {
    noise: within(scoreCovariance(noisy, theta, null)),
    sampling: within(samplingCovariance(noisy, theta, rows)),
  };
}

// Share of the half-widths of the intervals that is due to the bounds of the other coefficients.
function reliance({ noisy, pilot, w, variance, bias }) {
  const V = add(scoreCovariance(noisy, pilot.theta, null), pilot.sampling);
  return columnSums(w, multiply(V, w)).map((plain, j) => {
    const deviation = Math.sqrt(variance.constant[j]), whole = critical(LEVEL, bias[j] / deviation) * deviation;
    return Math.max(1 - (critical(LEVEL) * Math.sqrt(plain)) / whole, 0);
  });
}
