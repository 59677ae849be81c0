// Tails and quantiles of the normal law, and tails of chi-square.
const Normal = (() => {
  // exp(-x²) with x split so that the large part squares without rounding.
  function gauss(x) {
    const high = Math.trunc(x * 16) / 16, low = (x - high) * (x + high);
    return Math.exp(-high * high) * Math.exp(-low);
  }

  // 1 - erf(x): the series of erf below 2, a continued fraction above.
  function erfc(x) {
    if (x < 0) return 2 - erfc(-x);
    if (x > 27.3) return 0;
    if (x < 2) {
      let term = x, sum = x;
      for (let k = 1; Math.abs(term) > 1e-18 * sum; k++) {
        term *= (2 * x * x) / (2 * k + 1);
        sum += term;
      }
      return 1 - (2 / Math.sqrt(Math.PI)) * gauss(x) * sum;
    }
    let tail = 0; // x + (1/2)/(x + 1/(x + (3/2)/(x + …))), from far inside out
    for (let k = Math.ceil(20 + 400 / (x * x)); k >= 1; k--) tail = k / 2 / (x + tail);
    return gauss(x) / (Math.sqrt(Math.PI) * (x + tail));
  }

  const cdf = (x) => erfc(-x / Math.SQRT2) / 2;
  const density = (x) => Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);

  // z with P(Z > z) = p, by bisection, then Newton's steps on the logarithm of the tail.
  function upper(p) {
    if (p >= 1) return -Infinity;
    if (p <= 0) return Infinity;
    if (p > 0.5) return -upper(1 - p);
    let low = 0, high = 38;
    for (let k = 0; k < 20; k++) {
      const half = (low + high) / 2;
      if (cdf(-half) > p) low = half;
      else high = half;
    }
    let z = (low + high) / 2;
    for (let k = 0; k < 4; k++) {
      const tail = cdf(-z);
      z += (tail * Math.log(tail / p)) / density(z);
    }
    return z;
  }

  // For one level: bias ↦ the c with P(|Z + bias| > c) = level ≤ 1/2, from below, where Newton's steps stay.
  function critical(level) {
    const twoSided = upper(level / 2), oneSided = upper(level);
    return (bias) => {
      let c = Math.max(twoSided, bias + oneSided);
      for (let k = 0; k < 8; k++) {
        const near = c - bias, far = c + bias;
        const step = (cdf(-near) + cdf(-far) - level) / (density(near) + density(far));
        c += step;
        if (Math.abs(step) < 1e-16 * c) break;
      }
      return c;
    };
  }

  return { cdf, critical, upper };
})();
