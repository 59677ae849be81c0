// How encoded columns become the features of a regression: levels merged, one level of each category left out.
const Coding = (() => {
  // Labels after merging, in order of their first members, with the members' places.
  function mergedLevels(own, merges) {
    const renamed = new Map();
    for (const [name, members] of Object.entries(merges)) for (const label of members) renamed.set(label, name);
    for (const name of Object.keys(merges)) {
      if (own.labels.includes(name) && !renamed.has(name)) {
        throw new Error(`“${own.name}” has a level “${name}” that is not merged: take another name.`);
      }
    }
    const found = new Map();
    own.labels.forEach((label, place) => {
      const name = renamed.has(label) ? renamed.get(label) : label;
      if (!found.has(name)) found.set(name, []);
      found.get(name).push(place);
    });
    return found;
  }

  // Parts of a model with what they need: lower terms, and where their numbers are missing.
  function withNeeds(release, chosen) {
    const found = new Set();
    for (const name of chosen) for (const other of [...release.part.get(name).needs, name]) found.add(other);
    return release.parts.filter((own) => found.has(own.name));
  }

  // Features, the intercept first: { name, source, column, indices } each; and the levels that are left out.
  function of(release, chosen, { merge = {}, reference = {} } = {}) {
    const features = [], references = new Map(), renamed = new Map();
    for (const own of withNeeds(release, chosen)) {
      if (own.kind !== "categorical") {
        features.push(...featuresOf(release, own, renamed));
        continue;
      }
      const levels = mergedLevels(own, Object.hasOwn(merge, own.name) ? merge[own.name] : {});
      const leftOut = Object.hasOwn(reference, own.name) ? reference[own.name] : levels.keys().next().value;
      if (!levels.has(leftOut)) throw new Error(`“${leftOut}” is no level of “${own.name}”.`);
      for (const [label, places] of levels) {
        const indices = places.map((place) => own.indices[place]);
        for (const place of places) renamed.set(key(own.name, own.labels[place]), label === leftOut ? null : label);
        if (release.intercept !== null && label === leftOut) {
          references.set(own.name, { name: `${own.name}=${label}`, indices });
        } else {
          features.push({ name: `${own.name}=${label}`, source: own.name, column: release.encoded[indices[0]], indices });
        }
      }
    }
    if (release.intercept !== null) {
      const column = release.encoded[release.intercept];
      features.unshift({ name: Releases.INTERCEPT, source: null, column, indices: [release.intercept] });
    }
    return { features, references };
  }

  const key = (category, label) => JSON.stringify([category, label]);

  // A part that is no category; a product with one has no feature for the level that is left out.
  function featuresOf(release, own, renamed) {
    const found = new Map();
    for (const index of own.indices) {
      const column = release.encoded[index];
      for (const [category] of column.levels) checkMeasuredFromFirst(release, category, renamed);
      const labels = column.levels.map(([category, label]) => renamed.get(key(category, label)));
      if (labels.includes(null)) continue;
      let name = column.name;
      column.levels.forEach(([category, label], i) => {
        name = name.replace(`${category}=${label}`, () => `${category}=${labels[i]}`);
      });
      if (!found.has(name)) found.set(name, []);
      found.get(name).push(index);
    }
    return Array.from(found, ([name, indices]) => (
      { name, source: own.name, column: release.encoded[indices[0]], indices }
    ));
  }

  function checkMeasuredFromFirst(release, category, renamed) {
    const own = release.part.get(category);
    if (own.unknown !== "zero" && renamed.get(key(category, own.labels[0])) !== null) {
      throw new Error(`Products with “${category}” are measured from its first level, “${own.labels[0]}”, in this ` +
        "release: leave the reference as it is, or the products out.");
    }
  }

  // The map of (γ₀, γ) to coefficients of raw units, where the release has terms.
  function toRaw(release, features) {
    const d = features.length;
    if (release.raw === null) return Algebra.identity(d);
    const A = Algebra.identity(release.size);
    for (const [i, entries] of release.raw.rows) {
      A[i].fill(0);
      for (const [k, value] of entries) A[i][k] = value;
    }
    const rows = features.slice(1).map((own) => Releases.indicator(release, own.indices));
    const first = features.slice(1).map((own) => Math.min(...own.indices));
    const raw = Algebra.multiply(rows, A).map((row) => Float64Array.from(first, (i) => row[i]));
    const back = Algebra.solve(Algebra.transpose(raw), Algebra.identity(d - 1));
    const b = rows.map((row) => Algebra.dot(row, release.raw.b));
    const found = Algebra.identity(d);
    for (let j = 1; j < d; j++) {
      for (let i = 1; i < d; i++) found[i][j] = back[i - 1][j - 1];
      found[0][j] = -b.reduce((sum, value, i) => sum + value * back[i][j - 1], 0);
    }
    return found;
  }

  return { mergedLevels, of, toRaw, withNeeds };
})();
