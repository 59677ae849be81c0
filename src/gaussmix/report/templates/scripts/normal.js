// Tails of the normal distribution, and critical values.

// exp(-x²) with x split so that the square of the large part is exact.
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
    for (let k = 1; term > 1e-18 * sum; k++) {
      term *= (2 * x * x) / (2 * k + 1);
      sum += term;
    }
    return 1 - (2 / Math.sqrt(Math.PI)) * gauss(x) * sum;
  }
  let tail = 0; // x + (1/2)/(x + 1/(x + (3/2)/(x + …))), evaluated from the inside out
  for (let k = Math.ceil(20 + 400 / (x * x)); k >= 1; k--) tail = k / 2 / (x + tail);
  return gauss(x) / (Math.sqrt(Math.PI) * (x + tail));
}

const cdf = (x) => erfc(-x / Math.SQRT2) / 2;
const density = (x) => Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);

// The c with P(|Z| > c) = level, by Newton's steps on the logarithm of that tail, which is concave.
function critical(level) {
  let c = 1;
  for (let k = 0, step = 1; k < 50 && Math.abs(step) > 1e-16 * c; k++) {
    const tail = 2 * cdf(-c);
    step = (tail * Math.log(tail / level)) / (2 * density(c));
    c += step;
  }
  return c;
}
