// The embedded release: its numbers and its declared columns.
const Releases = (() => {
  const INTERCEPT = "(intercept)";

  function triangle(text, size) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const view = new DataView(bytes.buffer), A = Algebra.zeros(size, size);
    for (let i = 0, at = 0; i < size; i++) {
      for (let j = 0; j <= i; j++, at += 8) A[i][j] = A[j][i] = view.getFloat64(at, true);
    }
    return A;
  }

  // A second moment with noise: entries of M have covariance α(Q_ik Q_jl + Q_il Q_jk); N is what an empty table has.
  function noisyMoment(stored) {
    const { size, alpha, degrees, independent } = stored;
    const shape = typeof stored.shape === "number"
      ? Algebra.scaled(Algebra.identity(size), stored.shape) : triangle(stored.shape, size);
    const spread = stored.spread === null ? shape : triangle(stored.spread, size);
    return {
      moment: triangle(stored.moment, size), spread, shape, alpha, independent,
      degrees: degrees === null ? Infinity : degrees,
    };
  }

  // Of the columns L r in place of r.
  const mapped = (noisy, L) => ({
    ...noisy,
    moment: Algebra.congruence(L, noisy.moment),
    spread: Algebra.congruence(L, noisy.spread),
    shape: Algebra.congruence(L, noisy.shape),
  });

  function read(stored) {
    const part = new Map(stored.parts.map((own) => [own.name, own]));
    return { ...stored, noisy: noisyMoment(stored.noisy), size: stored.encoded.length, part };
  }

  function indicator(release, indices, value = 1) {
    const row = new Float64Array(release.size);
    for (const i of indices) row[i] = value;
    return row;
  }

  // Parts that can be explained: numbers, true and false.
  const targets = (release) => release.parts.filter((own) => ["numeric", "boolean"].includes(own.kind) && !own.marked);

  // Categories with two levels: their odds can be explained as well.
  const isClass = (own) => own.kind === "boolean" || (own.kind === "categorical" && own.indices.length === 2);

  // Parts that share no column of the table with a target.
  const explaining = (release, target) => {
    const taken = new Set(release.part.get(target).columns);
    return release.parts.filter((own) => !own.columns.some((name) => taken.has(name)));
  };

  return {
    INTERCEPT, explaining, indicator, isClass, mapped, read, targets,
  };
})();
