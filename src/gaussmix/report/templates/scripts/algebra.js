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
      const row = rows[i], own = rows[k], factor = row[k] / own[k];
      if (i !== k && factor !== 0) for (let j = k; j < row.length; j++) row[j] -= factor * own[j];
    }
  }
  return rows.map((row, i) => row.slice(n).map((value) => value / row[i]));
}

// The submatrix of some rows and columns.
const chosen = (A, indices) => indices.map((i) => Float64Array.from(indices, (j) => A[i][j]));

// L with LLᵀ = A, lower triangular.
function cholesky(A) {
  const L = zeros(A.length, A.length);
  A.forEach((row, i) => {
    for (let j = 0; j <= i; j++) {
      const left = row[j] - dot(L[i].subarray(0, j), L[j].subarray(0, j));
      L[i][j] = i === j ? Math.sqrt(left) : left / L[j][j];
    }
  });
  return L;
}

// L⁻¹ B by substitution.
function substitute(L, B) {
  const found = B.map((row) => Float64Array.from(row));
  L.forEach((row, i) => {
    const own = found[i];
    for (let k = 0; k < i; k++) {
      const factor = row[k], other = found[k];
      if (factor !== 0) for (let j = 0; j < own.length; j++) own[j] -= factor * other[j];
    }
    for (let j = 0; j < own.length; j++) own[j] /= row[i];
  });
  return found;
}

// Diagonal and subdiagonal of a tridiagonal matrix with the eigenvalues of A, by Householder reflections.
function tridiagonal(A) {
  const n = A.length, S = A.map((row) => Float64Array.from(row)), below = new Float64Array(n);
  for (let k = 0; k < n - 1; k++) {
    const x = Float64Array.from({ length: n }, (_, i) => (i > k ? S[i][k] : 0)), size = Math.sqrt(dot(x, x));
    below[k + 1] = x[k + 1] > 0 ? -size : size;
    x[k + 1] -= below[k + 1];
    const square = dot(x, x);
    if (!square) continue;
    const half = apply(S, x).map((value) => (2 * value) / square), turn = dot(half, x) / square;
    const w = half.map((value, i) => value - turn * x[i]);
    for (let i = k; i < n; i++) {
      const row = S[i], a = x[i], b = w[i];
      for (let j = k; j < n; j++) row[j] -= a * w[j] + b * x[j];
    }
  }
  return [diagonal(S), below];
}

// The smallest h with M u = h N u, and u, of unit length in the metric N: bisection, then inverse iteration.
function weakest(M, N) {
  const n = M.length, L = cholesky(N), half = substitute(L, M), A = substitute(L, transpose(half));
  const [diag, below] = tridiagonal(A), reach = (i) => Math.abs(below[i]) + Math.abs(below[i + 1] || 0);
  let low = Math.min(...diag.map((value, i) => value - reach(i))), high = Math.min(...diag);
  const least = 1e-15 * Math.max(...diag.map((value, i) => Math.abs(value) + reach(i)), 1e-300);
  while (high - low > Math.max(4e-16 * (Math.abs(low) + Math.abs(high)), least)) {
    const middle = (low + high) / 2;
    let pivot = 1, negative = false; // Sturm: a negative pivot of A - middle·I says that an eigenvalue is below
    for (let i = 0; i < n && !negative; i++) {
      pivot = diag[i] - middle - (i ? below[i] ** 2 / pivot : 0);
      negative = pivot < 0;
      if (pivot === 0) pivot = least;
    }
    if (negative) high = middle;
    else low = middle;
    if (middle === (low + high) / 2) break;
  }
  const shifted = map(A, (value, i, j) => value - (i === j ? low - 1e3 * least : 0));
  let v = Float64Array.from({ length: n }, (_, i) => 1 + ((i * 0.61803398875) % 1));
  for (let k = 0; k < 2; k++) {
    v = column(solve(shifted, Array.from(v, (value) => [value])), 0);
    const size = Math.sqrt(dot(v, v));
    v = v.map((value) => value / size);
  }
  return { value: (low + high) / 2, vector: column(solve(transpose(L), Array.from(v, (value) => [value])), 0) };
}
