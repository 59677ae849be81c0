// Rows, means, standard deviations and shares of levels with intervals; and correlations.
const Described = (() => {
  const SEEN = 2;

  // The combination of encoded columns that is 1 in every row.
  const constantRow = (release) => Releases.indicator(
    release, [release.intercept], release.encoded[release.intercept].scale,
  );

  // Encoded columns in the user's units.
  const unitRow = (release, index) => {
    const { centre, scale } = release.encoded[index], row = constantRow(release).map((value) => centre * value);
    row[index] += scale;
    return row;
  };

  // Columns that tables are about: of the table itself, without holes.
  const columns = (release) => release.parts.filter((own) => own.own && !own.marked);

  // Fieller's interval of a/b, for a and b normal of known covariance; where b is not told from 0 it does not end.
  function ratioInterval(over, under, [[varOver, both], [, varUnder]], z) {
    const A = under ** 2 - z ** 2 * varUnder, B = over * under - z ** 2 * both, C = over ** 2 - z ** 2 * varOver;
    const root = Math.sqrt(Math.max(B ** 2 - A * C, 0));
    return A > 0 ? [(B - root) / A, (B + root) / A] : [-Infinity, Infinity];
  }

  function ratio(over, under, covariance, z) {
    const value = under > 0 ? over / under : NaN;
    const variance = covariance[0][0] - 2 * value * covariance[0][1] + value ** 2 * covariance[1][1];
    return {
      estimate: value,
      error: Math.sqrt(Math.max(variance, 0)) / Math.abs(under),
      interval: ratioInterval(over, under, covariance, z),
    };
  }

  // Sums of squares and products of rows (p, m) with others (q, m) taken out, and the spread of their noise.
  function residuals(noisy, rows, given) {
    const p = rows.length, own = Releases.mapped(noisy, [...rows, ...given]);
    const held = own.moment.slice(p).map((row) => row.slice(p));
    const beta = Algebra.leastSquares(held, own.moment.slice(p).map((row) => row.slice(0, p)));
    const U = [...Algebra.identity(p), ...Algebra.scaled(beta, -1)], Ut = Algebra.transpose(U);
    const spread = Algebra.congruence(Ut, own.spread);
    let moment = Algebra.congruence(Ut, own.moment);
    if (noisy.alpha) {
      const seen = Algebra.multiply(own.spread, U).slice(p);
      const heldSpread = own.spread.slice(p).map((row) => row.slice(p));
      const trace = Algebra.leastSquares(held, heldSpread).reduce((sum, row, i) => sum + row[i], 0);
      const more = Algebra.multiply(Algebra.transpose(seen), Algebra.leastSquares(held, seen));
      moment = Algebra.symmetric(
        Algebra.map(moment, (value, i, j) => value + noisy.alpha * (trace * spread[i][j] + more[i][j])),
      );
    }
    const taken = Algebra.multiply(Algebra.transpose(beta), given);
    return { moment, spread, vectors: rows.map((row, i) => row.map((value, j) => value - taken[i][j])) };
  }

  // Mean and standard deviation of one encoded column.
  function meanAndDeviation(release, index, z) {
    const { noisy } = release, constant = constantRow(release), x = unitRow(release, index);
    const { moment: M, spread: Q, alpha } = Releases.mapped(noisy, [constant, x]);
    const mean = ratio(M[0][1], M[0][0], [
      [alpha * (Q[0][0] * Q[1][1] + Q[0][1] ** 2), 2 * alpha * Q[0][0] * Q[0][1]],
      [2 * alpha * Q[0][0] * Q[0][1], 2 * alpha * Q[0][0] ** 2],
    ], z);
    const left = residuals(noisy, [x], [constant]);
    const withRows = Algebra.quadratic(left.vectors[0], noisy.spread, constant);
    const square = ratio(left.moment[0][0], M[0][0], [
      [2 * alpha * left.spread[0][0] ** 2, 2 * alpha * withRows ** 2], [2 * alpha * withRows ** 2, 2 * alpha * Q[0][0] ** 2],
    ], z);
    const rows = Math.max(M[0][0], 2), stretch = rows / (rows - 1);
    const root = (value) => Math.sqrt(Math.max(stretch * value, 0)), value = root(square.estimate);
    const { name } = release.encoded[index];
    return [
      { term: name, statistic: "mean", ...mean },
      {
        term: name, statistic: "std", estimate: value, error: value ? (stretch * square.error) / (2 * value) : NaN,
        interval: square.interval.map(root),
      },
    ];
  }

  // Shares of levels; of true alone for a boolean.
  function shares(release, own, z) {
    const { labels, counts } = Counts.levels(release, own), n = labels.length;
    const under = counts.values.reduce((sum, value) => sum + value, 0), V = counts.covariance;
    const rowSums = V.map((row) => row.reduce((sum, value) => sum + value, 0));
    const varUnder = rowSums.reduce((sum, value) => sum + value, 0), found = [];
    for (let place = own.kind === "boolean" ? 1 : 0; place < n; place++) {
      const both = rowSums[place];
      const part = ratio(counts.values[place], under, [[V[place][place], both], [both, varUnder]], z);
      const interval = [Math.max(part.interval[0], 0), Math.min(part.interval[1], 1)];
      found.push({ term: `${own.name}=${labels[place]}`, statistic: "share", ...part, interval });
    }
    return found;
  }

  function describe(release, alpha) {
    const z = Normal.upper(alpha / 2), found = [];
    if (release.rows !== null) {
      const { rows, deviation } = release.rows;
      const interval = [Math.max(rows - z * deviation, 0), rows + z * deviation];
      found.push({ term: "(rows)", statistic: "count", estimate: rows, error: deviation, interval });
    }
    for (const own of columns(release)) {
      if (own.kind === "categorical" || own.kind === "boolean") found.push(...shares(release, own, z));
      else for (const index of own.indices) found.push(...meanAndDeviation(release, index, z));
    }
    return found;
  }

  // Correlations of encoded columns and standard deviations of their noise; NaN where a variance drowns in it.
  function correlations(release, chosen) {
    const indices = chosen.flatMap((name) => release.part.get(name).indices), { alpha } = release.noisy;
    const { moment: C, spread: U } = residuals(
      release.noisy, indices.map((i) => unitRow(release, i)), [constantRow(release)],
    );
    const unit = C.map((row, i) => (
      row[i] > SEEN * Math.sqrt(2 * alpha) * U[i][i] ? 1 / Math.sqrt(row[i]) : NaN
    ));
    const deviations = Algebra.map(C, (value, i, j) => {
      if (i === j) return Number.isNaN(unit[i]) ? NaN : 0;
      const both = unit[i] * unit[j], r = value * both, s = U[i][j] * both;
      const one = U[i][i] * unit[i] ** 2, two = U[j][j] * unit[j] ** 2;
      const variance = one * two + s ** 2 - 2 * r * s * (one + two) + (r ** 2 / 2) * (one ** 2 + two ** 2 + 2 * s ** 2);
      return Math.sqrt(Math.max(alpha * variance, 0));
    });
    const values = Algebra.map(C, (value, i, j) => {
      const r = value * unit[i] * unit[j];
      return Number.isNaN(r) ? NaN : i === j ? 1 : Math.min(Math.max(r, -1), 1);
    });
    return { names: indices.map((i) => release.encoded[i].name), values, deviations };
  }

  return { columns, constantRow, correlations, describe, ratio, ratioInterval, unitRow };
})();
