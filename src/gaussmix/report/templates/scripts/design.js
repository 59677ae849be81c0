// The embedded release, and a regression on some of its columns as an inference problem.
const INTERCEPT = "(intercept)", FREQUENT = 0.25;

function triangle(text, size) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)), view = new DataView(bytes.buffer);
  const A = zeros(size, size);
  for (let i = 0, at = 0; i < size; i++) {
    for (let j = 0; j <= i; j++, at += 8) A[i][j] = A[j][i] = view.getFloat64(at, true);
  }
  return A;
}

// Entries of the moment M have covariance N_ik N_jl + N_il N_jk, N the shape.
function readRelease(stored) {
  const matrices = ({ size, moment, shape, clipping_bias: clippingBias }) => {
    const matrix = (A) => (typeof A === "number" ? map(identity(size), (value) => A * value) : triangle(A, size));
    return { moment: matrix(moment), shape: matrix(shape), clippingBias };
  };
  const noisy = matrices(stored.noisy), pool = stored.pool && matrices(stored.pool);
  return { ...stored, noisy, pool, part: new Map(stored.parts.map((part) => [part.name, part])) };
}

// A combination of encoded columns from its nonzero entries.
function combination(release, entries) {
  const row = new Float64Array(release.encoded.length);
  for (const [i, value] of entries) row[i] = value;
  return row;
}

// Parts of a model with their requirements: lower-order terms and missing-value indicators.
function withNeeds(release, predictors) {
  const found = new Set(predictors.flatMap((name) => [...release.part.get(name).needs, name]));
  return release.parts.filter((own) => found.has(own.name));
}

// Parts that share no column of the table with a response.
function predictorsFor(release, response) {
  const taken = new Set(release.part.get(response).columns);
  return release.parts.filter((own) => !own.columns.some((name) => taken.has(name)));
}

// Noisy number of rows that have one of some levels, and its standard error.
function rowsOf(release, indices) {
  const u = combination(release, indices.map((i) => [i, release.encoded[i].scale])), bound = release.weight_bound;
  const { moment, shape } = release.noisy;
  return { count: bound * quadratic(u, moment), error: bound * Math.SQRT2 * quadratic(u, shape) };
}

// The first level, unless it has fewer than a quarter of the rows of the largest; always with interactions.
function defaultReference(release, parts, { name, indices, unknown }, names) {
  const products = parts.some((own) => own.name !== name && own.indices.some((i) => (
    release.encoded[i].levels.some(([category]) => category === name)
  )));
  if (products && unknown !== "zero") return names[0];
  const merged = [...new Set(names)];
  const counts = merged.map((label) => rowsOf(release, indices.filter((_, i) => names[i] === label)).count);
  return counts[0] < FREQUENT * Math.max(...counts) ? merged[counts.indexOf(Math.max(...counts))] : names[0];
}

const key = (category, label) => JSON.stringify([category, label]);

// Features { name, source, column, indices }, the intercept first, and the reference level of each category. `levels` has
// the names of the levels, by category; levels with the same name are merged.
function featuresOf(release, predictors, levels, reference) {
  const parts = withNeeds(release, predictors), called = new Map(), left = new Set(), references = new Map();
  for (const part of parts.filter((own) => own.kind === "categorical")) {
    const { name, labels } = part, names = levels.get(name) || labels;
    const first = reference.get(name) ?? defaultReference(release, parts, part, names);
    if (!names.includes(first)) throw new Error(`“${name}” has no level “${first}”.`);
    if (release.intercept !== null) references.set(name, `${name}=${first}`);
    labels.forEach((label, i) => {
      called.set(key(name, label), names[i]);
      if (names[i] === first) left.add(key(name, label));
    });
  }
  const features = release.intercept === null ? []
    : [{ name: INTERCEPT, source: null, column: release.encoded[release.intercept], indices: [release.intercept] }];
  for (const own of parts) {
    const found = new Map(), isLevel = own.kind === "categorical";
    for (const index of own.indices) {
      const { name, levels: pairs } = release.encoded[index];
      if (!isLevel) for (const [category] of pairs) checkFirst(release.part.get(category), left);
      if (pairs.some((pair) => left.has(key(...pair))) && !(isLevel && release.intercept === null)) continue;
      const renamed = pairs.reduce((text, pair) => (
        text.replace(pair.join("="), () => `${pair[0]}=${called.get(key(...pair))}`)
      ), name);
      found.set(renamed, [...(found.get(renamed) || []), index]);
    }
    for (const [name, indices] of found) {
      features.push({ name, source: own.name, column: release.encoded[indices[0]], indices });
    }
  }
  return { features, references };
}

// A release has products with the first level of a category only if unknown values are 0 in all levels.
function checkFirst({ name, labels, unknown }, left) {
  if (unknown === "zero" || left.has(key(name, labels[0]))) return;
  throw new Error(`Interactions with “${name}” require its first level, “${labels[0]}”, as the reference level. Choose ` +
    "it, or remove the interactions.");
}

// The map from coefficients of encoded features to original units, if the release has terms.
function toRaw(release, features) {
  const d = features.length, found = identity(d);
  if (release.raw === null || d < 2) return found;
  const own = new Map(release.raw.rows), raw = (i) => combination(release, own.get(i) || [[i, 1]]);
  const others = features.slice(1), first = others.map(({ indices }) => indices[0]);
  const A = others.map(({ indices }) => {
    const rows = indices.map(raw);
    return Float64Array.from(first, (j) => rows.reduce((sum, row) => sum + row[j], 0));
  });
  const back = solve(transpose(A), identity(d - 1));
  const b = others.map(({ indices }) => indices.reduce((sum, i) => sum + release.raw.b[i], 0));
  back.forEach((row, i) => found[i + 1].set(row, 1));
  found[0].set(apply(transpose(back), b).map((value) => -value), 1);
  return found;
}

// The second moment of features and response. Coefficients in original units are toUser · θ + offset. `reach` is the
// coefficient that moves the response by its declared range across the feature's own.
function problemOf(release, response, { predictors, levels, reference }) {
  const { features, references } = featuresOf(release, predictors, levels, reference), d = features.length;
  if (!d) throw new Error("Choose at least one predictor: this release has no intercept.");
  const reach = features.map((own) => response.half / own.column.span);
  const rows = features.map(({ indices }) => combination(release, indices.map((index) => [index, 1])));
  const { moment, shape, clippingBias } = release.noisy, L = [...rows, combination(release, response.vector)];
  const noisy = { moment: congruence(L, moment), shape: congruence(L, shape), clippingBias };
  let toUser = zeros(d, d);
  const offset = new Float64Array(d);
  features.forEach(({ column }, i) => { toUser[i][i] = response.scale / column.scale; });
  if (release.intercept !== null) {
    for (let i = 1; i < d; i++) toUser[0][i] = -toUser[i][i] * features[i].column.centre;
    toUser = multiply(toRaw(release, features), toUser);
    offset[0] = response.centre;
  }
  return { features, references, noisy, toUser, offset, reach, constant: release.intercept !== null };
}
