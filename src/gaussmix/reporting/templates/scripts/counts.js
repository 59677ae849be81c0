// Counts of levels and of pairs of levels, and sums within groups, by generalised least squares with known structure.
const Counts = (() => {
  const FLOOR = 1e-11, NONE_OF_THESE = "(none of these)";

  // Levels of a category, or false and true; and what each is in the user's units.
  function kinds(own) {
    if (own.kind === "boolean") return { labels: ["false", "true"], rows: [[0], [1]] };
    const rows = own.labels.map((_, i) => own.labels.map((__, j) => Number(i === j)));
    return own.unknown === "zero"
      ? { labels: [...own.labels, NONE_OF_THESE], rows: [...rows, own.labels.map(() => 0)] }
      : { labels: own.labels, rows };
  }

  // Q⁻¹, directions below the floor raised to it.
  function inverse(Q) {
    const unit = Algebra.diagonal(Q).map((value) => 1 / Math.sqrt(Math.max(value, 1e-300)));
    const { values, vectors } = Algebra.eigen(Algebra.map(Q, (value, i, j) => value * (unit[i] * unit[j])));
    const floor = FLOOR * values[values.length - 1];
    const half = Algebra.map(vectors, (value, i, j) => (unit[i] * value) / Math.sqrt(Math.max(values[j], floor)));
    return Algebra.multiply(half, Algebra.transpose(half));
  }

  // β̂ = K⁻¹r and its covariance αK⁻¹ for G = Σ β_k D_k: K_kl = ½tr(D_k P D_l P), r_k = ½tr(D_k P M P), P = Q⁻¹.
  function fitStructure(noisy, designs) {
    const weighed = noisy.alpha ? noisy.spread
      : Algebra.map(noisy.moment, (value, i, j) => (i === j ? Math.max(value, 1e-300) : 0));
    const P = inverse(weighed), seen = designs.map((D) => Algebra.multiply(Algebra.multiply(P, D), P));
    const K = seen.map((own) => Float64Array.from(designs, (D) => Algebra.total(own, D) / 2));
    const r = seen.map((own) => Algebra.total(own, noisy.moment) / 2);
    const unit = K.map((row, i) => 1 / Math.sqrt(Math.max(row[i], 1e-300)));
    const scaled = Algebra.symmetric(Algebra.map(K, (value, i, j) => value * (unit[i] * unit[j])));
    const back = Algebra.map(Algebra.pseudoInverse(scaled), (value, i, j) => unit[i] * value * unit[j]);
    return { values: Algebra.apply(back, r), covariance: Algebra.scaled(back, noisy.alpha) };
  }

  const levelDesign = (u) => Algebra.outer(u, u);

  function levels(release, own) {
    const { labels, rows } = kinds(own);
    const noisy = Releases.mapped(
      Releases.countedIn(release, [own]),
      [Described.constantRow(release), ...own.indices.map((i) => Described.unitRow(release, i))],
    );
    return { labels, counts: fitStructure(noisy, rows.map((row) => levelDesign([1, ...row]))) };
  }

  // Counts of all pairs of levels, row by row, in the units of the matrix.
  function cells(release, one, two) {
    const a = kinds(one), b = kinds(two);
    const noisy = Releases.mapped(Releases.countedIn(release, [one, two]), [
      Described.constantRow(release), ...[...one.indices, ...two.indices].map((i) => Described.unitRow(release, i)),
    ]);
    const pairs = a.rows.flatMap((row) => b.rows.map((column) => [1, ...row, ...column]));
    return { rows: a.labels, columns: b.labels, fitted: fitStructure(noisy, pairs.map(levelDesign)) };
  }

  // Counts whose sum is the number of rows, where that is known apart from them.
  function scaledTo(counts, { rows, deviation, apart }) {
    if (!apart) return counts;
    const total = counts.values.reduce((sum, value) => sum + value, 0);
    const share = counts.values.map((value) => (total > 0 ? value / total : NaN));
    const J = Algebra.map(Algebra.identity(share.length), (value, i) => (value - share[i]) / total);
    const V = Algebra.multiply(Algebra.multiply(J, counts.covariance), Algebra.transpose(J));
    return {
      values: share.map((value) => rows * value),
      covariance: Algebra.map(V, (value, i, j) => rows ** 2 * value + deviation ** 2 * share[i] * share[j]),
    };
  }

  // The test of independence with the noise of the counts in it.
  function independence(counts, a, b) {
    const n = counts.values, degrees = (a - 1) * (b - 1), total = n.reduce((sum, value) => sum + value, 0);
    const p = new Float64Array(a), q = new Float64Array(b), cells = Array.from(n.keys());
    cells.forEach((k) => { p[Math.floor(k / b)] += n[k] / total; q[k % b] += n[k] / total; });
    if (!degrees || !(total > 0) || Math.min(...p, ...q) <= 0) return { statistic: NaN, p: NaN, degrees, share: NaN };
    const row = (k) => Math.floor(k / b), expected = (k) => p[row(k)] * q[k % b];
    const J = Algebra.map(Algebra.identity(a * b), (value, k, l) => (
      value - (row(k) === row(l)) * q[k % b] - (k % b === l % b) * p[row(k)] + expected(k)
    ));
    const kept = cells.filter((k) => row(k) < a - 1 && k % b < b - 1);
    const noise = Algebra.block(Algebra.congruence(J, counts.covariance), kept);
    const part = (shares, i, j) => (i === j) * shares[i] - shares[i] * shares[j];
    const covariance = noise.map((values, i) => values.map((value, j) => (
      value + total * part(p, row(kept[i]), row(kept[j])) * part(q, kept[i] % b, kept[j] % b)
    )));
    const h = kept.map((k) => n[k] - total * expected(k));
    const found = Algebra.solve(covariance, noise.map((values, i) => Float64Array.of(h[i], ...values)));
    const statistic = h.reduce((sum, value, i) => sum + value * found[i][0], 0);
    const share = found.reduce((sum, values, i) => sum + values[i + 1], 0) / degrees;
    return { statistic, p: Normal.chiSquare(statistic, degrees), degrees, share };
  }

  // Noisy counts with their deviations and intervals, shares of the row, and the test.
  function crosstab(release, one, two, alpha) {
    const { rows, columns, fitted: raw } = cells(release, one, two);
    const a = rows.length, b = columns.length, z = Normal.upper(alpha / 2);
    const apart = release.rows.apart && Releases.passThatCounts(release, [one, two]) > 0;  // the first counts rows itself
    const fitted = scaledTo(raw, { ...release.rows, apart });
    const table = (values) => rows.map((_, i) => Array.from(values.slice(i * b, (i + 1) * b)));
    const deviations = Algebra.diagonal(fitted.covariance).map((value) => Math.sqrt(Math.max(value, 0)));
    return {
      rows, columns,
      estimates: table(fitted.values),
      deviations: table(deviations),
      low: table(fitted.values.map((value, k) => Math.max(value - z * deviations[k], 0))),
      high: table(fitted.values.map((value, k) => Math.max(value + z * deviations[k], 0))),
      rowShares: table(fitted.values.map((value, k) => {
        const start = Math.floor(k / b) * b, whole = fitted.values.slice(start, start + b).reduce((x, y) => x + y, 0);
        return whole > 0 ? Math.min(Math.max(value / whole, 0), 1) : NaN;
      })),
      independence: independence(raw, a, b),
    };
  }

  // Means of a number within levels, with Fieller's intervals.
  function means(release, target, by, alpha) {
    const z = Normal.upper(alpha / 2), { labels, rows } = kinds(by), k = labels.length, p = by.indices.length + 1;
    const { centre } = release.encoded[target.indices[0]], constant = Described.constantRow(release);
    const x = Described.unitRow(release, target.indices[0]).map((value, i) => value - centre * constant[i]);
    const noisy = Releases.mapped(
      release.noisy, [constant, ...by.indices.map((i) => Described.unitRow(release, i)), x],
    );
    const designs = Array.from({ length: 2 * k + 1 }, () => Algebra.zeros(p + 1, p + 1));
    rows.forEach((row, a) => {
      const u = [1, ...row];
      u.forEach((value, i) => {
        u.forEach((other, j) => { designs[a][i][j] = value * other; });
        designs[k + a][i][p] = designs[k + a][p][i] = value;
      });
    });
    designs[2 * k][p][p] = 1;
    const { values, covariance: V } = fitStructure(noisy, designs);
    return labels.map((label, a) => {
      const covariance = [[V[k + a][k + a], V[a][k + a]], [V[a][k + a], V[a][a]]];
      const { interval: [low, high] } = Described.ratio(values[k + a], values[a], covariance, z);
      const mean = Number.isFinite(low) ? values[k + a] / values[a] : NaN;
      const variance = covariance[0][0] - 2 * mean * covariance[0][1] + mean ** 2 * covariance[1][1];
      const error = Math.sqrt(Math.max(variance, 0)) / Math.abs(values[a]);
      return { label, mean: mean + centre, error, interval: [low + centre, high + centre] };
    });
  }

  return { NONE_OF_THESE, crosstab, kinds, levels, means };
})();
