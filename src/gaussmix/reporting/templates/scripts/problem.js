// One regression as an inference problem: its second moment in encoded units, and the way back to the user's.
const Problems = (() => {
  // A number, or true and false as 1 and 0.
  function numberResponse(release, target) {
    const own = release.part.get(target), column = release.encoded[own.indices[0]];
    return {
      name: target, vector: Releases.indicator(release, own.indices), centre: column.centre, scale: column.scale,
    };
  }

  // A column with two values as -1 and 1.
  function classResponse(release, target) {
    const own = release.part.get(target), vector = new Float64Array(release.size);
    if (own.kind === "boolean") vector[own.indices[0]] = 1 / own.weight;
    else own.indices.forEach((index, i) => { vector[index] = (i ? 1 : -1) / own.weight; });
    const second = own.kind === "boolean" ? "true" : own.labels[1];
    return { name: `${target} = ${second}`, vector, centre: 0.5, scale: 0.5 };
  }

  // Half of the declared range of an encoded column in encoded units; all of the intercept.
  function halfSpan(release, column) {
    if (column.source === null) return 1 / column.scale;
    const { weight } = release.part.get(column.source);
    return ["level", "basis"].includes(column.kind) ? weight / 2 : weight;
  }

  // Half of the declared range of a combination of encoded columns.
  function halfRange(release, vector) {
    let found = 0;
    for (const own of release.parts) {
      const values = own.indices.map((i) => vector[i]);
      if (values.every((value) => value === 0)) continue;
      if (own.kind === "categorical") {
        const ends = own.indices.map((i) => vector[i] / release.encoded[i].scale);
        found += (Math.max(...ends) - Math.min(...ends)) / 2;
      } else {
        for (const i of own.indices) found += Math.abs(vector[i]) * halfSpan(release, release.encoded[i]);
      }
    }
    return found;
  }

  function of(release, response, chosen, options) {
    const { features, references } = Coding.of(release, chosen, options);
    if (!features.length) throw new Error("There is nothing to explain the target with: choose columns.");
    const d = features.length, rows = features.map((own) => Releases.indicator(release, own.indices));
    const noisy = Releases.mapped(release.noisy, [...rows, response.vector]);
    let toUser = Algebra.zeros(d, d), total = noisy.moment[d][d];
    const offset = new Float64Array(d);
    features.forEach(({ column }, i) => { toUser[i][i] = response.scale / column.scale; });
    if (release.intercept !== null) {
      features.forEach(({ column }, i) => {
        if (i) toUser[0][i] = (-response.scale * column.centre) / column.scale;
      });
      toUser = Algebra.multiply(Coding.toRaw(release, features), toUser);
      offset[0] = response.centre;
      total -= noisy.moment[0][d] ** 2 / Math.max(noisy.moment[0][0], 1e-300);
    }
    const half = halfRange(release, response.vector);
    return {
      d, features, references, noisy, toUser, offset, total, response, release,
      names: features.map((own) => own.name),
      reach: Float64Array.from(features, ({ column }) => half / halfSpan(release, column)),
    };
  }

  // Largest coefficients that are assumed, in encoded units.
  const bounds = (problem, largest) => problem.reach.map(
    (reach, i) => (problem.names[i] === Releases.INTERCEPT ? 1 + 2 * largest : largest) * reach,
  );

  const residual = (problem, theta) => Algebra.quadratic([...theta.map((value) => -value), 1], problem.noisy.moment);

  // Signal of independent directions in the noise's metric: h, increasing, and F with FᵀMF = h, FᵀQF = I.
  function directions(problem) {
    const { d, noisy } = problem;
    const scale = Float64Array.from({ length: d }, (_, i) => 1 / Math.sqrt(Math.max(noisy.spread[i][i], 1e-300)));
    const inUnits = (A) => Algebra.map(Algebra.leading(A, d), (value, i, j) => value * (scale[i] * scale[j]));
    const metric = Algebra.add(inUnits(noisy.spread), Algebra.scaled(Algebra.identity(d), 1e-13));
    const L = Algebra.cholesky(metric), half = Algebra.forward(L, inUnits(noisy.moment));
    const { values, vectors } = Algebra.eigen(Algebra.forward(L, Algebra.transpose(half)));
    const back = Algebra.solve(Algebra.transpose(L), vectors);
    return { signal: values, frame: Algebra.map(back, (value, i) => scale[i] * value) };
  }

  // The combination of features that stands least above the noise, by its parts across declared ranges.
  function weakest(problem) {
    const { signal, frame } = directions(problem), parts = new Map();
    problem.names.forEach((name, i) => parts.set(name, frame[i][0] / problem.reach[i]));
    for (const [source, { name }] of problem.references) {
      const own = problem.features.filter((feature) => feature.source === source).map((feature) => feature.name);
      const middle = median([0, ...own.map((other) => parts.get(other))]);
      for (const other of own) parts.set(other, parts.get(other) - middle);
      parts.set(name, -middle);
    }
    parts.delete(Releases.INTERCEPT);
    const strength = signal[0] / Math.sqrt(2 * problem.noisy.alpha);
    if (!parts.size) return { names: [Releases.INTERCEPT], strength };
    const order = [...parts.keys()].sort((one, two) => Math.abs(parts.get(two)) - Math.abs(parts.get(one)));
    const largest = Math.abs(parts.get(order[0]));
    return { names: order.slice(0, 3).filter((name) => Math.abs(parts.get(name)) >= largest / 2), strength };
  }

  function median(values) {
    const sorted = [...values].sort((a, b) => a - b), middle = sorted.length >> 1;
    return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  }

  return { bounds, classResponse, numberResponse, of, residual, weakest };
})();
