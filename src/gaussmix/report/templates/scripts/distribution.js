// Rows drawn from a distribution with the second moments of the release: gaussmix.models.predictor_distribution. A
// column of drawn rows is a Float64Array.
const ROUNDS = 3, LEAST_SHARE = 1e-7, VARIANCE_FLOOR = 1e-9;

// Points of a dimension of the shifted Sobol sequence as whole numbers below `points`, in the order of the Gray code.
function sobolColumn({ points: most, directions, shifts }, dimension, points) {
  const shift = Math.log2(most) - Math.log2(points), found = new Int32Array(points);
  found[0] = shifts[dimension] >> shift;
  for (let n = 1; n < points; n++) {
    const bit = 31 - Math.clz32(n & -n); // the bit in which the Gray codes of n - 1 and n differ
    found[n] = found[n - 1] ^ (directions[bit][dimension] >> shift);
  }
  return found;
}

// Normal quantiles of all (i + ½)/points, by Newton's steps on the tail from a rational start.
const quantileTables = new Map();
function normalTable(points) {
  if (quantileTables.has(points)) return quantileTables.get(points);
  const found = new Float64Array(points);
  for (let i = 0; i < points / 2; i++) {
    const p = (i + 0.5) / points, t = Math.sqrt(-2 * Math.log(p));
    let x = -(t - (2.515517 + 0.802853 * t + 0.010328 * t * t) / (1 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t ** 3));
    for (let k = 0; k < 3; k++) { // Halley's steps
      const e = (cdf(x) - p) / density(x);
      x -= e / (1 + (x * e) / 2);
    }
    found[i] = x;
    found[points - 1 - i] = -x;
  }
  quantileTables.set(points, found);
  return found;
}

function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)), view = new DataView(bytes.buffer);
  return Float64Array.from({ length: bytes.length / 8 }, (_, i) => view.getFloat64(8 * i, true));
}

// Values of increasing ranks, from the counts of cells.
function valuesOf({ below, ends, whole }, count) {
  const own = unpacked(ends), cells = whole ? own.length / 2 : own.length - 1, found = new Float64Array(count);
  const from = own.subarray(0, cells), to = own.subarray(whole ? cells : 1);
  const edges = below === null ? Float64Array.from({ length: cells + 1 }, (_, i) => Math.sin(((Math.PI / 2) * i) / cells) ** 2) : unpacked(below);
  for (let i = 0, cell = 0; i < count; i++) {
    const rank = (i + 0.5) / count;
    while (cell < from.length - 1 && edges[cell + 1] <= rank) cell += 1;
    const share = Math.max(edges[cell + 1] - edges[cell], 1e-300), width = to[cell] - from[cell];
    const part = Math.min(Math.max((rank - edges[cell]) / share, 0), 1 - 1e-12);
    found[i] = from[cell] + (whole ? Math.floor(part * Math.max(width + 1, 1)) : part * width);
  }
  return found;
}

// θ of the columns `own` on the columns `done` of noisy moments, shape (done, own): directions within the noise count little.
function leastSquaresOf(G, N, done, own) {
  const d = done.length, unit = done.map((i) => 1 / Math.sqrt(Math.max(G[i][i], 1e-300)));
  const scaled = (A) => done.map((i, a) => Float64Array.from(done, (j, b) => A[i][j] * unit[a] * unit[b]));
  const M = scaled(G), shape = scaled(N), ridge = (1e-12 * diagonal(shape).reduce((x, y) => x + y, 0)) / d;
  for (let a = 0; a < d; a++) shape[a][a] += ridge;
  const cross = done.map((i, a) => Float64Array.from(own, (j) => unit[a] * G[i][j]));
  const half = substitute(cholesky(shape), M.map((row, a) => Float64Array.of(...row, ...cross[a])));
  const L = half.map((row) => row.subarray(0, d)), g = half.map((row) => row.subarray(d)), back = transpose(L);
  const found = solve(map(multiply(back, L), (value, a, b) => value + d * shape[a][b]), multiply(back, g));
  return found.map((row, a) => row.map((value) => unit[a] * value));
}

// L with LLᵀ = S; squared pivots are raised to the floor where noise made them less.
function lowerRoot(S, floor) {
  const L = zeros(S.length, S.length);
  for (let j = 0; j < S.length; j++) {
    const left = (i) => S[i][j] - dot(L[i].subarray(0, j), L[j].subarray(0, j)), pivot = left(j);
    L[j][j] = Math.sqrt(Math.max(pivot, floor[j]));
    if (pivot >= floor[j]) for (let i = j + 1; i < S.length; i++) L[i][j] = left(i) / L[j][j];
  }
  return L;
}

// Set the moments of indicators to what moments of indicators can be.
function asIndicators(G, groups) {
  const share = new Float64Array(G.length), places = groups.flat();
  for (const i of places) share[i] = Math.min(Math.max((G[i][i] + G[0][i]) / 2, LEAST_SHARE), 1 - LEAST_SHARE);
  for (const own of groups) {
    const sum = own.reduce((x, i) => x + share[i], 0), factor = Math.min(1, (1 - LEAST_SHARE) / Math.max(sum, LEAST_SHARE));
    for (const i of own) share[i] *= factor;
  }
  for (const i of places) {
    for (const j of places) {
      G[i][j] = Math.min(Math.max(G[i][j], Math.max(share[i] + share[j] - 1, 0)), Math.min(share[i], share[j]));
    }
  }
  for (const own of groups) for (const i of own) for (const j of own) G[i][j] = 0;
  for (const i of places) G[0][i] = G[i][0] = G[i][i] = share[i];
  G[0][0] = 1;
  return G;
}

// Encoded columns of drawn rows by index. `sources` are names of parts; `response` is a combination of encoded columns
// that is 0 or 1, drawn last among the levels, or null. Numbers are drawn after the levels, or before them.
function drawRows(release, { sources, response, shaped, numbersFirst, points }) {
  const { encoded, pool } = release, one = combination(release, [[release.intercept, encoded[release.intercept].scale]]);
  const wanted = new Set(sources.flatMap((name) => [name, ...release.part.get(name).computed]));
  const parts = release.parts.filter((own) => wanted.has(own.name));
  const isLevel = ({ kind }) => kind === "categorical" || kind === "boolean" || kind === "missing";
  const levels = parts.filter(isLevel), numbers = parts.filter((own) => !isLevel(own) && !own.computed.length).flatMap((own) => own.indices);
  const original = (i) => { // the combination that is x in original units
    const row = one.map((value) => encoded[i].centre * value);
    row[i] += encoded[i].scale;
    return row;
  };
  const rows = [one], places = new Map(), references = new Map();
  for (const { name, kind, indices, unknown } of levels) {
    let own = indices.map(original), reference = null;
    if (kind === "categorical" && unknown !== "zero") {
      const counts = own.map((row) => dot(row, apply(pool.moment, one)));
      reference = counts.indexOf(Math.max(...counts));
      own = own.filter((_, i) => i !== reference);
    }
    references.set(name, reference);
    places.set(name, own.map((_, i) => rows.length + i));
    rows.push(...own);
  }
  const groups = [...places.values()];
  if (response) {
    groups.push([rows.length]);
    rows.push(response);
  }
  const ofNumbers = numbers.map((_, i) => rows.length + i);
  rows.push(...numbers.map((i) => combination(release, [[i, 1]])));
  const moment = congruence(rows, pool.moment), size = Math.max(moment[0][0], 1);
  const N = map(congruence(rows, pool.shape), (value) => value / size);
  const G = asIndicators(map(moment, (value) => value / size), groups.filter((own) => own.length));

  const V = rows.map(() => new Float64Array(points)), ones = V[0].fill(1), drawn = groups.filter((own) => own.length);
  const marks = levels.filter(({ kind }) => kind === "missing").map(({ name }) => places.get(name));
  const before = numbersFirst ? marks : drawn; // where a number is missing is known before it is drawn
  let done = [0], dimension = 0;
  for (const own of [...before, ofNumbers, ...drawn.filter((other) => !before.includes(other))]) {
    if (own !== ofNumbers) {
      drawLevels(V, leastSquaresOf(G, N, done, own), done, own, sobolColumn(release.sobol, dimension, points), points);
      dimension += 1;
    } else if (own.length) {
      const table = normalTable(points);
      const Z = own.map((_, i) => Float64Array.from(sobolColumn(release.sobol, dimension + i, points), (u) => table[u]));
      const shapes = numbers.map((i) => shapeOf(release, i, shaped));
      const absent = numbers.map((i) => {
        const mark = `${release.part.get(encoded[i].source).base}=(missing)`;
        return places.has(mark) ? V[places.get(mark)[0]] : null;
      });
      drawNumbers({ G, N, V, Z, done, own, shapes, absent, points }).forEach((x, k) => { V[own[k]] = x; });
      dimension += own.length;
    }
    done = [...done, ...own];
  }
  const R = new Map([[release.intercept, ones.map((value) => value / encoded[release.intercept].scale)]]);
  for (const { name, indices } of levels) {
    const own = places.get(name).map((i) => V[i]), reference = references.get(name);
    if (reference !== null) own.splice(reference, 0, ones.map((_, n) => 1 - own.reduce((sum, level) => sum + level[n], 0)));
    indices.forEach((i, k) => R.set(i, own[k].map((value) => (value - encoded[i].centre) / encoded[i].scale)));
  }
  numbers.forEach((i, k) => R.set(i, V[ofNumbers[k]]));
  for (const { indices } of parts.filter((own) => own.computed.length)) {
    for (const i of indices) R.set(i, termOf(release, R, places, V, i));
  }
  return R;
}

function drawLevels(V, theta, done, own, u, points) {
  const p = own.map(() => new Float64Array(points)), few = done.length, many = own.length;
  for (let a = 0; a < few; a++) {
    const source = V[done[a]];
    for (let k = 0; k < many; k++) {
      const factor = theta[a][k], target = p[k];
      for (let n = 0; n < points; n++) target[n] += factor * source[n];
    }
  }
  for (let n = 0; n < points; n++) {
    let sum = 0;
    for (let k = 0; k < many; k++) sum += p[k][n] = Math.max(p[k][n], 0);
    const limit = ((u[n] + 0.5) / points) * (sum + Math.max(1 - sum, 0));
    for (let k = 0, end = 0, picked = false; k < many; k++) {
      end += p[k][n];
      V[own[k]][n] = Number(!picked && limit <= end);
      picked = picked || limit <= end;
    }
  }
}

// The encoded values of increasing ranks; null for a normal shape.
const rankedValues = new WeakMap(); // by column and number of rows
function shapeOf(release, index, shaped) {
  const own = release.encoded[index], { centre, scale, quantiles, source } = own, { kind, lower, upper } = release.part.get(source);
  if (!shaped || quantiles === null) return null;
  if (!rankedValues.has(own)) rankedValues.set(own, new Map());
  const known = rankedValues.get(own);
  return (count) => {
    if (!known.has(count)) {
      known.set(count, valuesOf(quantiles, count).map((value) => (
        ((kind === "numeric" ? Math.min(Math.max(value, lower), upper) : value) - centre) / scale
      )));
    }
    return known.get(count);
  };
}

const product = (A, B) => A.map((x) => Float64Array.from(B, (y) => dot(x, y))); // of columns
const gram = (A) => { // of columns with themselves
  const found = A.map((x, i) => Float64Array.from(A, (y, j) => (j <= i ? dot(x, y) : 0)));
  return map(found, (value, i, j) => found[Math.max(i, j)][Math.min(i, j)]);
};

// Numbers that are normal given what is done, mapped to their shapes, with the released moments.
function drawNumbers({ G, N, V, Z, done, own, shapes, absent, points }) {
  const theta = leastSquaresOf(G, N, done, own), D = done.map((i) => V[i]), k = own.length;
  const cross = multiply(own.map((i) => Float64Array.from(done, (j) => G[i][j])), theta);
  const plain = own.map((i, a) => Float64Array.from(own, (j, b) => G[i][j] - cross[a][b]));
  const wanted = map(plain, (value, a, b) => (value + plain[b][a]) / 2);
  const floor = own.map((i) => VARIANCE_FLOOR * Math.max(G[i][i], 1e-12));
  const adjusted = shapes.some((own_) => own_) || absent.some((own_) => own_);
  const moments = adjusted ? map(gram(D), (value, a, b) => value + (a === b ? 1e-10 * points : 0)) : null;
  const combine = (factors) => Array.from({ length: k }, (_, b) => { // D · factors
    const found = new Float64Array(points);
    D.forEach((source, a) => {
      const factor = factors[a][b];
      if (factor !== 0) for (let n = 0; n < points; n++) found[n] += factor * source[n];
    });
    return found;
  });
  const first = combine(theta);
  let mean = first, S = wanted;
  for (let turn = 0; ; turn++) {
    const L = lowerRoot(S, floor);
    const X = mean.map((start, a) => {
      const found = start.slice();
      for (let b = 0; b <= a; b++) {
        const factor = L[a][b], source = Z[b];
        if (factor !== 0) for (let n = 0; n < points; n++) found[n] += factor * source[n];
      }
      return mapped(found, shapes[a], absent[a]);
    });
    if (!adjusted || turn === ROUNDS) return X;
    const fitted = combine(solve(moments, product(D, X))), left = X.map((x) => x.slice()), next = mean.map((x) => x.slice());
    for (let a = 0; a < k; a++) {
      const own_ = left[a], to = next[a], from = first[a], fit = fitted[a];
      for (let n = 0; n < points; n++) {
        own_[n] -= fit[n];
        to[n] += from[n] - fit[n];
      }
    }
    mean = next;
    const reached = gram(left);
    const ratio = S.map((row, a) => Math.sqrt(Math.max(row[a], floor[a]) / Math.max(wanted[a][a], floor[a])));
    S = map(S, (value, a, b) => value + (wanted[a][b] - reached[a][b] / points) * ratio[a] * ratio[b]);
  }
}

// Places of values in increasing order; equal values keep theirs. Buckets of equal width, then insertion.
function orderOf(values, places) {
  const n = places.length, count = new Int32Array(n + 1), found = new Int32Array(n), bucket = new Int32Array(n);
  let low = Infinity, high = -Infinity;
  for (let k = 0; k < n; k++) {
    const value = values[places[k]];
    if (value < low) low = value;
    if (value > high) high = value;
  }
  const width = (high - low) / (n - 1) || 1;
  for (let k = 0; k < n; k++) {
    bucket[k] = Math.floor((values[places[k]] - low) / width);
    count[bucket[k] + 1] += 1;
  }
  for (let b = 0; b < n; b++) count[b + 1] += count[b];
  for (let k = 0; k < n; k++) found[count[bucket[k]]++] = places[k];
  for (let k = 1; k < n; k++) {
    const own = found[k], value = values[own];
    let at = k;
    for (; at > 0 && values[found[at - 1]] > value; at--) found[at] = found[at - 1];
    found[at] = own;
  }
  return found;
}

// Map values through their ranks to a shape; entries of missing numbers are 0.
function mapped(values, shape, absent) {
  if (!shape && !absent) return values;
  const found = new Float64Array(values.length), places = new Int32Array(values.length);
  let many = 0;
  for (let n = 0; n < values.length; n++) if (!absent || absent[n] < 0.5) places[many++] = n;
  const known = places.subarray(0, many);
  if (shape && many) {
    const order = orderOf(values, known), ranked = shape(many);
    for (let i = 0; i < many; i++) found[order[i]] = ranked[i];
  } else {
    for (let i = 0; i < many; i++) found[known[i]] = values[known[i]];
  }
  return found;
}

// Cubic B-splines of z in [-1, 1] but the first.
function splinesOf(size, z) {
  const pieces = size - 2, knots = [-1, -1, -1, ...Array.from({ length: pieces + 1 }, (_, i) => -1 + (2 * i) / pieces), 1, 1, 1];
  const cell = Math.max(Math.floor(Math.min((z + 1) * (pieces / 2), pieces - 1)), 0);
  const ramp = (x, start, end) => (end > start ? (x - start) / (end - start) : 0);
  let basis = knots.slice(1).map((_, i) => Number(cell === i - 3));
  for (let degree = 1; degree <= 3; degree++) {
    basis = basis.slice(1).map((_, i) => ramp(z, knots[i], knots[i + degree]) * basis[i] +
      ramp(-z, -knots[i + degree + 1], -knots[i + 1]) * basis[i + 1]);
  }
  return basis.slice(1).map((value) => Math.min(Math.max(value, 0), 1) * (1 - 2 ** -40));
}

// An entry of a power, product or spline, from the values drawn.
function termOf(release, R, places, V, index) {
  const { factors, scale } = release.encoded[index], points = R.get(release.intercept).length;
  const found = new Float64Array(points).fill(1 / scale);
  for (const { part: name, log, exp, hour, centre, half, degree, spline, place } of factors) {
    const own = release.part.get(name), categorical = own.kind === "categorical";
    const i = own.indices[categorical ? place : 0], source = R.get(i), unit = release.encoded[i];
    const mark = `${own.base}=(missing)`, absent = places.has(mark) ? V[places.get(mark)[0]] : null;
    for (let n = 0; n < points; n++) {
      let x = source[n] * unit.scale + unit.centre;
      if (categorical) {
        found[n] *= x;
        continue;
      }
      if (own.kind === "numeric") x = Math.min(Math.max(x, own.lower), own.upper);
      if (log) x = Math.log(x);
      if (exp) x = Math.exp(x);
      if (hour) x = (x - Math.floor(x)) * 24;
      const z = Math.min(Math.max((x - centre) / half, -1), 1);
      let before = 1, now = z;
      for (let j = 1; j < degree; j++) [before, now] = [now, ((2 * j + 1) * z * now - j * before) / (j + 1)];
      if (spline) now = splinesOf(spline, z)[place];
      found[n] *= absent && absent[n] > 0.5 ? 0 : Math.min(Math.max(now, -1), 1);
    }
  }
  return found;
}
