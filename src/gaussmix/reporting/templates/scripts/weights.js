// Weights of the scores that test one coefficient each, under a declared bound of all coefficients.
const Weights = (() => {
  const KAPPAS = [1, 4, 16, 64, 256, 4096, 65536];
  const HARDLY_LONGER = 1.02, PRIOR = 3, STRONG = 10, ROUNDS = 3, ROUNDING = 1e-13;
  const critical = Normal.critical(0.05); // of the interval whose length chooses κ
  const { apply, dot, eigen, leading, map, multiply, outer, quadratic, scaled, singular, total, transpose, zeros } = Algebra;

  const unexplained = (theta) => Float64Array.of(...Array.from(theta, (value) => -value), 1); // a = (-θ, 1)
  const columnSums = (A, B) => A[0].map((_, j) => A.reduce((sum, row, i) => sum + row[j] * B[i][j], 0)); // Σ_i A_ij B_ij

  // What corrects aᵀQa of a sketch for the coefficients that were fitted to it.
  const noiseFactor = ({ degrees }, fitted) => (degrees === Infinity ? 1 : degrees / Math.max(degrees - fitted, 1));

  // s²M_xx: what drawing n rows adds; directions of M_xx that noise turned negative count nothing.
  function samplingCovariance(noisy, theta, rows) {
    const d = theta.length;
    if (rows === null) return zeros(d, d);
    const left = quadratic(unexplained(theta), noisy.moment);
    const least = noisy.alpha === 0 ? 1e-12 * noisy.moment[d][d] : 0;
    const variance = Math.max(left, least, 0) / Math.max(rows - d, 1);
    const by = noisy.alpha ? noisy.spread : noisy.moment;
    const scale = Float64Array.from({ length: d }, (_, i) => Math.sqrt(Math.max(by[i][i], 1e-300)));
    const { values, vectors } = eigen(map(leading(noisy.moment, d), (value, i, j) => value / (scale[i] * scale[j])));
    const floor = noisy.alpha ? 0 : 1e-6 * Math.max(values[d - 1], 1e-300);
    const half = map(vectors, (value, i, j) => scale[i] * value * Math.sqrt(Math.max(values[j], floor)));
    return scaled(multiply(half, transpose(half)), variance);
  }

  // α[Q_xx aᵀQa + (Na)_x(Na)_xᵀ], averaged over a law of θ with a mean and a covariance.
  function scoreCovariance(noisy, theta, covariance, factor) {
    const d = theta.length, a = unexplained(theta);
    const Q = leading(noisy.spread, d), N = leading(noisy.shape, d);
    const c = apply(noisy.shape, a).slice(0, d);
    let omega = quadratic(a, noisy.spread), V = outer(c, c);
    if (covariance !== null) {
      omega += total(Q, covariance);
      V = Algebra.add(V, multiply(multiply(N, covariance), N));
    }
    return map(V, (value, i, j) => noisy.alpha * (factor * omega * Q[i][j] + value));
  }

  // H with HVHᵀ = I; directions that rounding lost are raised to the smallest that it could not lose.
  function whitening(V) {
    const scale = Algebra.diagonal(V).map((value) => Math.sqrt(Math.max(value, 1e-300)));
    const { values, vectors } = eigen(map(V, (value, i, j) => value / (scale[i] * scale[j])));
    const floor = ROUNDING * values[values.length - 1];
    return map(transpose(vectors), (value, i, j) => value / Math.sqrt(Math.max(values[i], floor)) / scale[j]);
  }

  // MV⁻¹M_xx and MV⁻¹M_xy less what noise in M adds to them.
  function information(noisy, H) {
    const d = H.length;
    const HM = multiply(H, noisy.moment.slice(0, d)), HQ = multiply(H, noisy.spread.slice(0, d));
    const own = (A) => A.map((row) => row.slice(0, d));
    const trace = total(own(HQ), H);
    const M = multiply(transpose(own(HM)), HM), Q = multiply(transpose(own(HQ)), HQ);
    const found = map(M, (value, i, j) => value - noisy.alpha * (Q[i][j] + trace * noisy.spread[i][j]));
    return { information: own(found), cross: Algebra.column(found, d) };
  }

  // What is known about all coefficients at once: a normal law, in units of their bounds.
  function pilot(noisy, rows) {
    const d = noisy.moment.length - 1;
    let theta = new Float64Array(d), covariance = zeros(d, d), V, H, sampling, basis, signal;
    for (let round = 0; round < ROUNDS; round++) {
      sampling = samplingCovariance(noisy, theta, rows);
      V = Algebra.add(scoreCovariance(noisy, theta, covariance, noiseFactor(noisy, d - 1)), sampling);
      H = whitening(V);
      const found = information(noisy, H), { values, vectors } = eigen(found.information);
      basis = vectors;
      signal = values.map((value) => Math.sqrt(Math.max(value, 0)));
      covariance = multiply(map(basis, (value, i, j) => value / (signal[j] ** 2 + PRIOR)), transpose(basis));
      theta = apply(covariance, found.cross);
    }
    return { theta, covariance, V, H, sampling, basis, signal, ...singular(multiply(H, leading(noisy.moment, d))) };
  }

  // Laws of all coefficients given one functional each, a column each.
  function conditional(known, noisy, functionals) {
    const { theta, covariance, H, sampling, basis, signal } = known, d = theta.length;
    const a = unexplained(theta), Rt = transpose(basis);
    const Q = multiply(multiply(Rt, leading(noisy.spread, d)), basis), X = multiply(Rt, transpose(functionals));
    const atMean = quadratic(a, noisy.spread), whole = atMean + total(leading(noisy.spread, d), covariance);
    const constant = total(multiply(H, sampling), H) / d;
    const strong = signal.map((value) => value ** 2 / (value ** 2 + STRONG ** 2) + 1e-4);
    let omega = new Float64Array(functionals.length).fill(whole), values, moves, along, own;
    for (let round = 0; round < ROUNDS; round++) {
      const fall = omega.map((value) => (noisy.alpha ? constant + (1 - constant) * Math.min(value / whole, 1) : 1));
      values = map(X, (_, i, j) => 1 / (signal[i] ** 2 / fall[j] + PRIOR));
      const turned = map(X, (value, i, j) => values[i][j] * strong[i] * value), sums = columnSums(X, turned);
      moves = map(turned, (value, i, j) => value / sums[j]);
      along = map(X, (value, i, j) => values[i][j] * value);
      own = columnSums(X, along);
      const Qm = multiply(Q, moves), crossed = columnSums(Qm, along), squared = columnSums(Qm, moves);
      omega = omega.map((_, j) => atMean + values.reduce((sum, row, i) => sum + Q[i][i] * row[j], 0) -
        2 * crossed[j] + own[j] * squared[j]);
    }
    return { moves: multiply(basis, moves), along: multiply(basis, along), own, values, omega };
  }

  // Variances of vᵀ(e - r t), one vector (a column) for each functional.
  function left(given, basis, vectors) {
    const turn = columnSums(vectors, given.moves), along = columnSums(vectors, given.along);
    const inBasis = multiply(transpose(basis), vectors);
    const whole = columnSums(map(inBasis, (value) => value ** 2), given.values);
    return whole.map((value, j) => Math.max(value - 2 * turn[j] * along[j] + turn[j] ** 2 * given.own[j], 0));
  }

  // w_κ of every functional (rows), as columns.
  function columnsFor(known, kappa, functionals) {
    const filtered = known.values.map((value) => {
      const s = Math.max(value, ROUNDING * known.values[0]);
      return kappa === Infinity ? 1 / s : s / (s ** 2 + 1 / kappa);
    });
    const inBasis = map(multiply(known.Rt, transpose(functionals)), (value, i) => filtered[i] * value);
    return multiply(multiply(transpose(known.H), known.U), inBasis);
  }

  // How wᵀM_xx θ depends on ψ = ℓᵀθ, and the most that it can move by the other coefficients.
  function slopesAndBiases(columns, moment, functionals) {
    const e = multiply(transpose(columns), moment);
    const slope = Float64Array.from(e, (row, i) => row[i] / functionals[i][i]);
    const bias = Float64Array.from(e, (row, i) => row.reduce(
      (sum, value, j) => (i === j ? sum : sum + Math.abs(value - slope[i] * functionals[i][j])), 0,
    ));
    return { slope, bias };
  }

  function halfLengths(columns, V, moment, functionals, exact) {
    const variance = columnSums(columns, multiply(V, columns));
    const { slope, bias } = slopesAndBiases(columns, moment, functionals);
    return variance.map((value, j) => {
      const deviation = Math.sqrt(value), ratio = exact ? 0 : bias[j] / deviation;
      const length = (critical(ratio) * deviation) / Math.abs(slope[j]);
      return Number.isFinite(length) ? length : Infinity;
    });
  }

  // Weights of every test, each with the κ that promises the shortest interval.
  function of(known, moment, functionals) {
    const columns = columnsFor(known, Infinity, functionals);
    const shortest = halfLengths(columns, known.V, moment, functionals, true).map((length) => length / HARDLY_LONGER);
    const exact = Array.from(functionals, () => true);
    for (const kappa of KAPPAS) {
      const others = columnsFor(known, kappa, functionals);
      halfLengths(others, known.V, moment, functionals, false).forEach((length, j) => {
        if (!(length < shortest[j])) return;
        shortest[j] = length;
        exact[j] = false;
        columns.forEach((row, i) => { row[j] = others[i][j]; });
      });
    }
    return { columns, exact };
  }

  return {
    columnSums, conditional, left, noiseFactor, of, pilot, samplingCovariance, scoreCovariance, slopesAndBiases, unexplained,
  };
})();
