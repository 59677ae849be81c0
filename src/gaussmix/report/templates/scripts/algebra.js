// Dense matrices as arrays of rows (Float64Array), and the factorisations that inference needs.
const zeros = (rows, columns) => Array.from({ length: rows }, () => new Float64Array(columns));
const map = (A, change) => A.map((row, i) => row.map((value, j) => change(value, i, j)));
const identity = (n) => map(zeros(n, n), (_, i, j) => Number(i === j));
const column = (A, j) => Float64Array.from(A, (row) => row[j]);
const diagonal = (A) => Float64Array.from(A, (row, i) => row[i]);
const transpose = (A) => (A.length ? Array.from(A[0], (_, j) => column(A, j)) : []);
const leading = (A, d) => A.slice(0, d).map((row) => row.slice(0, d));
const add = (A, B) => map(A, (value, i, j) => value + B[i][j]);

const dot = (x, y) => {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += x[i] * y[i];
  return sum;
};
const apply = (A, x) => Float64Array.from(A, (row) => dot(row, x));
const quadratic = (x, A) => dot(x, apply(A, x));
const total = (A, B) => A.reduce((sum, row, i) => sum + dot(row, B[i]), 0); // Σ_ij A_ij B_ij

function multiply(A, B) {
  return A.map((row) => {
    const found = new Float64Array(B[0].length);
    for (let k = 0; k < B.length; k++) {
      const factor = row[k], other = B[k];
      if (factor !== 0) for (let j = 0; j < found.length; j++) found[j] += factor * other[j];
    }
    return found;
  });
}

const gram = (A) => multiply(transpose(A), A); // AᵀA
const congruence = (L, A) => {
  const found = multiply(multiply(L, A), transpose(L));
  return map(found, (value, i, j) => (value + found[j][i]) / 2);
};

// A⁻¹ B by elimination with row pivots.
function solve(A, B) {
  const n = A.length, rows = A.map((row, i) => Float64Array.of(...row, ...B[i]));
  for (let k = 0; k < n; k++) {
    let pivot = k;
    for (let i = k + 1; i < n; i++) if (Math.abs(rows[i][k]) > Math.abs(rows[pivot][k])) pivot = i;
    [rows[k], rows[pivot]] = [rows[pivot], rows[k]];
    for (let i = 0; i < n; i++) {
      const factor = rows[i][k] / rows[k][k];
      if (i !== k && factor !== 0) for (let j = k; j < rows[i].length; j++) rows[i][j] -= factor * rows[k][j];
    }
  }
  return rows.map((row, i) => row.slice(n).map((value) => value / row[i]));
}

// Cosine and sine of the rotation that makes [[a, both], [both, b]] diagonal (Jacobi's method).
function rotation(a, b, both) {
  const zeta = (b - a) / (2 * both), t = Math.sign(zeta || 1) / (Math.abs(zeta) + Math.hypot(1, zeta));
  const c = 1 / Math.hypot(1, t);
  return [c, c * t];
}

function rotate(one, two, [c, s]) {
  for (let k = 0; k < one.length; k++) {
    const first = one[k];
    one[k] = c * first - s * two[k];
    two[k] = s * first + c * two[k];
  }
}

// Go through all pairs p < q until `turn` finds nothing to turn.
function sweep(n, turn) {
  for (let round = 0, turned = true; turned && round < 40; round++) {
    turned = false;
    for (let p = 0; p < n - 1; p++) for (let q = p + 1; q < n; q++) if (turn(p, q)) turned = true;
  }
}

const decreasing = (values) => Array.from(values.keys()).sort((i, j) => values[j] - values[i]);

// A = Uᵀ diag(values) R, values decreasing. Rotations from one side make the columns of A orthogonal, which gives small
// singular values their digits.
function singular(A) {
  const n = A[0].length, C = transpose(A), R = identity(n), squares = C.map((row) => dot(row, row));
  sweep(n, (p, q) => {
    const both = dot(C[p], C[q]);
    if (Math.abs(both) <= n * Number.EPSILON * Math.sqrt(squares[p] * squares[q])) return false;
    const angle = rotation(squares[p], squares[q], both);
    rotate(C[p], C[q], angle);
    rotate(R[p], R[q], angle);
    for (const i of [p, q]) squares[i] = dot(C[i], C[i]);
    return true;
  });
  const values = Float64Array.from(squares, Math.sqrt), order = decreasing(values);
  const U = C.map((row, i) => row.map((value) => (values[i] > 0 ? value / values[i] : 0)));
  return { U: order.map((i) => U[i]), values: values.map((_, i) => values[order[i]]), R: order.map((i) => R[i]) };
}

// A = Vᵀ diag(values) V of a symmetric matrix, values decreasing: rotations from both sides.
function eigen(A) {
  const n = A.length, S = map(A, (value, i, j) => (value + A[j][i]) / 2), V = identity(n);
  const least = (Number.EPSILON * Math.sqrt(total(S, S))) / n;
  sweep(n, (p, q) => {
    if (Math.abs(S[p][q]) <= least) return false;
    const angle = rotation(S[p][p], S[q][q], S[p][q]), [c, s] = angle;
    rotate(S[p], S[q], angle);
    for (let k = 0; k < n; k++) {
      const first = S[k][p];
      S[k][p] = c * first - s * S[k][q];
      S[k][q] = s * first + c * S[k][q];
    }
    rotate(V[p], V[q], angle);
    return true;
  });
  const order = decreasing(diagonal(S));
  return { values: Float64Array.from(order, (i) => S[i][i]), V: order.map((i) => V[i]) };
}
