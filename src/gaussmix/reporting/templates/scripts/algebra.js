// Dense matrices as arrays of rows (Float64Array), and the factorisations that inference needs.
const Algebra = (() => {
  const EPSILON = 2 ** -52;

  const zeros = (rows, columns) => Array.from({ length: rows }, () => new Float64Array(columns));
  const identity = (n) => zeros(n, n).map((row, i) => { row[i] = 1; return row; });
  const copy = (A) => A.map((row) => Float64Array.from(row));
  const transpose = (A) => {
    const T = zeros(A.length ? A[0].length : 0, A.length);
    A.forEach((row, i) => row.forEach((value, j) => { T[j][i] = value; }));
    return T;
  };
  const diagonal = (A) => Float64Array.from(A, (row, i) => row[i]);
  const column = (A, j) => Float64Array.from(A, (row) => row[j]);
  const dot = (x, y) => {
    let sum = 0;
    for (let i = 0; i < x.length; i++) sum += x[i] * y[i];
    return sum;
  };
  const apply = (A, x) => Float64Array.from(A, (row) => dot(row, x));
  const quadratic = (x, A, y = x) => dot(x, apply(A, y));

  function multiply(A, B) {
    const width = B[0].length;
    return A.map((row) => {
      const found = new Float64Array(width);
      for (let k = 0; k < B.length; k++) {
        const factor = row[k], other = B[k];
        if (factor !== 0) for (let j = 0; j < width; j++) found[j] += factor * other[j];
      }
      return found;
    });
  }

  const map = (A, change) => A.map((row, i) => row.map((value, j) => change(value, i, j)));
  const add = (A, B) => map(A, (value, i, j) => value + B[i][j]);
  const scaled = (A, factor) => map(A, (value) => factor * value);
  const symmetric = (A) => map(A, (value, i, j) => (value + A[j][i]) / 2);
  const outer = (x, y) => Array.from(x, (value) => Float64Array.from(y, (other) => value * other));
  const block = (A, rows, columns = rows) => rows.map((i) => Float64Array.from(columns, (j) => A[i][j]));
  const leading = (A, d) => A.slice(0, d).map((row) => row.slice(0, d));
  const congruence = (L, A) => symmetric(multiply(multiply(L, A), transpose(L))); // L A Lᵀ
  const total = (A, B) => A.reduce((sum, row, i) => sum + dot(row, B[i]), 0); // Σ A_ij B_ij

  // A = L Lᵀ of a positive definite matrix.
  function cholesky(A) {
    const n = A.length, L = zeros(n, n);
    for (let i = 0; i < n; i++) {
      for (let j = 0; j <= i; j++) {
        let sum = A[i][j];
        for (let k = 0; k < j; k++) sum -= L[i][k] * L[j][k];
        if (i > j) L[i][j] = sum / L[j][j];
        else if (sum > 0) L[i][i] = Math.sqrt(sum);
        else throw new RangeError("the matrix is not positive definite");
      }
    }
    return L;
  }

  // L⁻¹ B by forward substitution.
  function forward(L, B) {
    const X = copy(B);
    for (let i = 0; i < L.length; i++) {
      for (let k = 0; k < i; k++) for (let j = 0; j < X[i].length; j++) X[i][j] -= L[i][k] * X[k][j];
      for (let j = 0; j < X[i].length; j++) X[i][j] /= L[i][i];
    }
    return X;
  }

  // A⁻¹ B by elimination with row pivots.
  function solve(A, B) {
    const n = A.length, left = copy(A), right = copy(B);
    for (let k = 0; k < n; k++) {
      let pivot = k;
      for (let i = k + 1; i < n; i++) if (Math.abs(left[i][k]) > Math.abs(left[pivot][k])) pivot = i;
      [left[k], left[pivot]] = [left[pivot], left[k]];
      [right[k], right[pivot]] = [right[pivot], right[k]];
      for (let i = k + 1; i < n; i++) {
        const factor = left[i][k] / left[k][k];
        if (factor === 0) continue;
        for (let j = k; j < n; j++) left[i][j] -= factor * left[k][j];
        for (let j = 0; j < right[i].length; j++) right[i][j] -= factor * right[k][j];
      }
    }
    for (let i = n - 1; i >= 0; i--) {
      for (let j = 0; j < right[i].length; j++) {
        let sum = right[i][j];
        for (let k = i + 1; k < n; k++) sum -= left[i][k] * right[k][j];
        right[i][j] = sum / left[i][i];
      }
    }
    return right;
  }

  const asColumn = (x) => Array.from(x, (value) => Float64Array.of(value));
  const solveVector = (A, x) => column(solve(A, asColumn(x)), 0);

  // A = V diag(values) Vᵀ, values increasing: reflections to tridiagonal form, then rotations with implicit shifts.
  function eigen(A) {
    const n = A.length, V = symmetric(A), values = new Float64Array(n), off = new Float64Array(n);
    tridiagonalise(V, values, off);
    const R = transpose(V); // eigenvectors as rows: rotations then touch contiguous numbers
    for (let l = 0; l < n; l++) {
      for (let round = 0; round < 60; round++) {
        let m = l;
        while (m < n - 1 && Math.abs(off[m]) > EPSILON * (Math.abs(values[m]) + Math.abs(values[m + 1]))) m++;
        if (m === l) break;
        implicitStep(values, off, R, l, m);
      }
    }
    const order = Array.from(values.keys()).sort((i, j) => values[i] - values[j]);
    return { values: Float64Array.from(order, (i) => values[i]), vectors: transpose(order.map((i) => R[i])) };
  }

  // Householder's reflections from the last row up; V becomes their product, `values` and `off` the tridiagonal form.
  function tridiagonalise(V, values, off) {
    const n = V.length;
    for (let i = n - 1; i > 0; i--) {
      let scale = 0, h = 0;
      for (let k = 0; k < i; k++) scale += Math.abs(V[i][k]);
      if (i === 1 || scale === 0) {
        off[i] = V[i][i - 1];
      } else {
        const v = V[i];
        for (let k = 0; k < i; k++) { v[k] /= scale; h += v[k] * v[k]; }
        const g = v[i - 1] >= 0 ? -Math.sqrt(h) : Math.sqrt(h);
        off[i] = scale * g;
        h -= v[i - 1] * g;
        v[i - 1] -= g;
        const p = new Float64Array(i);
        for (let j = 0; j < i; j++) {
          for (let k = 0; k <= j; k++) p[j] += V[j][k] * v[k];
          for (let k = j + 1; k < i; k++) p[j] += V[k][j] * v[k];
          p[j] /= h;
        }
        const half = dot(p, v.subarray(0, i)) / (2 * h);
        for (let j = 0; j < i; j++) {
          p[j] -= half * v[j];
          for (let k = 0; k <= j; k++) V[j][k] -= v[j] * p[k] + p[j] * v[k];
        }
        for (let k = 0; k < i; k++) V[k][i] = v[k] / h; // kept above the diagonal until the product is made
      }
      values[i] = h;
    }
    values[0] = 0;
    for (let i = 0; i < n; i++) {
      if (values[i] !== 0) {
        for (let j = 0; j < i; j++) {
          let g = 0;
          for (let k = 0; k < i; k++) g += V[i][k] * V[k][j];
          for (let k = 0; k < i; k++) V[k][j] -= g * V[k][i];
        }
      }
      values[i] = V[i][i];
      V[i][i] = 1;
      for (let j = 0; j < i; j++) { V[j][i] = 0; V[i][j] = 0; }
    }
    off.copyWithin(0, 1);
    off[n - 1] = 0;
  }

  // One sweep of rotations from m down to l, with Wilkinson's shift.
  function implicitStep(values, off, R, l, m) {
    let g = (values[l + 1] - values[l]) / (2 * off[l]);
    let r = Math.hypot(g, 1);
    g = values[m] - values[l] + off[l] / (g + (g >= 0 ? r : -r));
    let s = 1, c = 1, p = 0;
    for (let i = m - 1; i >= l; i--) {
      const f = s * off[i], b = c * off[i];
      r = Math.hypot(f, g);
      off[i + 1] = r;
      if (r === 0) {
        values[i + 1] -= p;
        off[m] = 0;
        return;
      }
      s = f / r;
      c = g / r;
      g = values[i + 1] - p;
      r = (values[i] - g) * s + 2 * c * b;
      p = s * r;
      values[i + 1] = g + p;
      g = c * r - b;
      const one = R[i], two = R[i + 1];
      for (let k = 0; k < one.length; k++) {
        const upper = two[k];
        two[k] = s * one[k] + c * upper;
        one[k] = c * one[k] - s * upper;
      }
    }
    values[l] -= p;
    off[l] = g;
    off[m] = 0;
  }

  // A = U diag(values) Rᵀ, values decreasing: from the eigenvectors of AᵀA on, Jacobi's rotations from one side, which
  // give small values their digits.
  function singular(A) {
    const n = A[0].length, R = transpose(eigen(multiply(transpose(A), A)).vectors);
    const C = multiply(R, transpose(A)); // rows of C are columns of A R
    let turned = true;
    for (let sweep = 0; turned && sweep < 40; sweep++) {
      turned = false;
      for (let p = 0; p < n - 1; p++) {
        for (let q = p + 1; q < n; q++) {
          const a = dot(C[p], C[p]), b = dot(C[q], C[q]), both = dot(C[p], C[q]);
          if (Math.abs(both) <= n * EPSILON * Math.sqrt(a * b)) continue;
          turned = true;
          const zeta = (b - a) / (2 * both);
          const t = Math.sign(zeta || 1) / (Math.abs(zeta) + Math.hypot(1, zeta));
          const c = 1 / Math.hypot(1, t), s = c * t;
          for (const M of [C, R]) {
            const one = M[p], two = M[q];
            for (let k = 0; k < one.length; k++) {
              const first = one[k];
              one[k] = c * first - s * two[k];
              two[k] = s * first + c * two[k];
            }
          }
        }
      }
    }
    const norms = C.map((row) => Math.sqrt(dot(row, row)));
    const order = Array.from(norms.keys()).sort((i, j) => norms[j] - norms[i]);
    const U = order.map((i) => C[i].map((value) => (norms[i] > 0 ? value / norms[i] : 0)));
    return { U: transpose(U), values: Float64Array.from(order, (i) => norms[i]), Rt: order.map((i) => R[i]) };
  }

  // A⁺ of a symmetric matrix; eigenvalues that are rounding errors count as 0.
  function pseudoInverse(A) {
    const { values, vectors } = eigen(A);
    const largest = Math.max(...values.map(Math.abs)), floor = A.length * EPSILON * largest;
    const inverse = values.map((value) => (Math.abs(value) > floor ? 1 / value : 0));
    return multiply(map(vectors, (value, i, j) => value * inverse[j]), transpose(vectors));
  }

  return {
    add, apply, block, cholesky, column, congruence, copy, diagonal, dot, eigen, forward, identity, leading,
    map, multiply, outer, pseudoInverse, quadratic, scaled, singular, solve, solveVector, symmetric, total,
    transpose, zeros,
  };
})();
