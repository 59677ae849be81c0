// Counts that are not negative and whole, and that add up: the likeliest ones, then controlled rounding.
const Whole = (() => {
  const WHOLE = 1e-9;

  // The likeliest counts that are not negative: least squares in the metric of the noise, by active sets.
  function notNegative({ values: estimates, covariance }) {
    if (estimates.every((value) => value >= 0)) return estimates;
    const { values, vectors } = Algebra.eigen(covariance);
    const floor = 1e-12 * Math.max(values[values.length - 1], 1e-300);
    const half = Algebra.map(Algebra.transpose(vectors), (value, i) => value / Math.sqrt(Math.max(values[i], floor)));
    const A = Algebra.multiply(Algebra.transpose(half), half), b = Algebra.apply(A, estimates), n = b.length;
    const x = new Float64Array(n), free = new Set();
    const unconstrained = () => {
      const own = [...free], found = new Float64Array(n);
      const solved = Algebra.solveVector(Algebra.block(A, own), own.map((i) => b[i]));
      own.forEach((i, k) => { found[i] = solved[k]; });
      return found;
    };
    for (let round = 0; round < 3 * n; round++) {
      const gradient = b.map((value, i) => value - Algebra.dot(A[i], x));
      const tolerance = 1e-12 * Math.max(...b.map(Math.abs));
      let best = -1;
      gradient.forEach((value, i) => {
        if (!free.has(i) && value > tolerance && (best < 0 || value > gradient[best])) best = i;
      });
      if (best < 0) break;
      free.add(best);
      for (let target = unconstrained(); ; target = unconstrained()) {
        const below = [...free].filter((i) => target[i] <= 0);
        if (!below.length) {
          x.set(target);
          break;
        }
        const step = Math.min(...below.map((i) => x[i] / (x[i] - target[i])));
        x.forEach((value, i) => { x[i] = value + step * (target[i] - value); });
        for (const i of below) if (x[i] <= 1e-12 * Math.max(...x)) { x[i] = 0; free.delete(i); }
      }
    }
    return x;
  }

  const snapped = (value) => (Math.abs(value - Math.round(value)) < WHOLE ? Math.round(value) : value);
  const completion = (sum) => Math.ceil(sum - WHOLE) - sum; // what is missing to the next integer
  const sumOf = (values) => values.reduce((sum, value) => sum + value, 0);

  // Every cell, every margin and the total become one of the two integers next to them.
  function rounded(cells) {
    if (!cells.flat().every(Number.isFinite)) return cells.map((row) => row.map(() => NaN));
    const table = cells.map((row) => [...row, completion(sumOf(row))]);
    const last = cells[0].map((_, j) => completion(sumOf(cells.map((row) => row[j]))));
    table.push([...last, completion(sumOf(last))]);
    const part = table.map((row) => row.map((value) => snapped(value - Math.floor(value))));
    for (let cycle = cycleOf(part); cycle !== null; cycle = cycleOf(part)) {
      const at = ([i, j]) => part[i][j];
      const up = cycle.filter((_, k) => k % 2 === 0), down = cycle.filter((_, k) => k % 2 === 1);
      const forward = Math.min(...up.map((cell) => 1 - at(cell)), ...down.map(at));
      const backward = Math.min(...up.map(at), ...down.map((cell) => 1 - at(cell)));
      const step = forward <= backward ? forward : -backward; // the shorter move
      for (const [i, j] of up) part[i][j] = snapped(part[i][j] + step);
      for (const [i, j] of down) part[i][j] = snapped(part[i][j] - step);
    }
    return cells.map((row, i) => row.map((_, j) => Math.floor(table[i][j]) + part[i][j]));
  }

  // Cells of a closed walk along rows and columns in turn; null where no cell is a fraction.
  function cycleOf(part) {
    const fraction = (i, j) => part[i][j] > 0 && part[i][j] < 1;
    const row = part.findIndex((values, i) => values.some((_, j) => fraction(i, j)));
    if (row < 0) return null;
    const cells = [[row, part[row].findIndex((_, j) => fraction(row, j))]], lines = [`0,${row}`];
    for (let axis = 1; ; axis = 1 - axis) {
      const cell = cells[cells.length - 1], line = `${axis},${cell[axis]}`;
      if (lines.includes(line)) return cells.slice(lines.indexOf(line));
      lines.push(line);
      const places = axis ? part.keys() : part[0].keys();
      const other = [...places].find((place) => place !== cell[1 - axis] &&
        (axis ? fraction(place, cell[1]) : fraction(cell[0], place)));
      cells.push(axis ? [other, cell[1]] : [cell[0], other]);
    }
  }

  return { notNegative, rounded };
})();
