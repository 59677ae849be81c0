# Reads a release of gaussmix in R: the Gram matrix G, the shape N of its noise, and a table of a regression.
#
#     source("gaussmix.R")
#     release <- read_release("patients.release.parquet")      # needs the package arrow, or nanoparquet
#     regression(release, "cost", c("age", "bmi", "smoker"))
#
# Without either package: `gaussmix export patients.release.parquet patients.csv`, and read_release("patients.csv").
#
# What is in a release (docs/release.md): rows are encoded as (x - centre) / scale. G estimates the sum of r r' over the
# encoded rows r, and entry (i, j) of G has noise of variance N[i, i] * N[j, j] + N[i, j]^2. The regression here is plain
# least squares on these noisy moments, and its standard errors are those of the noise alone (Wald): they are valid where
# all directions stand well above the noise. `gaussmix ols` leaves out the columns for which this is not so.
# From the Parquet file coefficients are in encoded units, numbers in half-ranges; from an export in the user's.
# Base R but for the reader of Parquet files.

read_release <- function(file) {
  if (grepl("\\.csv$", file)) {
    frame <- utils::read.csv(file, check.names = FALSE)
  } else if (requireNamespace("arrow", quietly = TRUE)) {
    frame <- as.data.frame(arrow::read_parquet(file))
  } else if (requireNamespace("nanoparquet", quietly = TRUE)) {
    frame <- as.data.frame(nanoparquet::read_parquet(file))
  } else {
    stop("Install the package arrow or nanoparquet, or export the release: gaussmix export FILE OUT.csv")
  }
  block <- as.character(frame[[1]])
  names <- colnames(frame)[-1]
  matrix_of <- function(label) {
    found <- as.matrix(frame[block == label, names, drop = FALSE])
    dimnames(found) <- list(names, names)
    found
  }
  found <- list(names = names, G = matrix_of("G"), N = matrix_of("N"))
  if ("units" %in% block) {
    # of an export: centre and scale of every column
    units <- as.matrix(frame[block == "units", names, drop = FALSE])
    found$centre <- stats::setNames(units[1, ], names)
    found$scale <- stats::setNames(units[2, ], names)
  }
  found
}

# Columns of the release that belong to the columns `on` of the table, the first level of each category left out.
features <- function(release, on) {
  found <- character()
  for (name in on) {
    own <- release$names[release$names == name]
    levels <- release$names[startsWith(release$names, paste0(name, "="))]
    if (length(own) + length(levels) == 0) stop("There is no column ", name, " in the release.")
    found <- c(found, own, levels[-1])
  }
  c("(intercept)", found)
}

# Least squares of `target` on the columns `on`. With a = (-theta, 1) the score (G a)_x has the covariance
# N_xx * (a' N a) + (N a)_x (N a)_x', and theta = G_xx^-1 G_xy moves by G_xx^-1 times it.
regression <- function(release, target, on, level = 0.95) {
  x <- features(release, on)
  G <- release$G
  N <- release$N
  theta <- solve(G[x, x], G[x, target])
  a <- c(-theta, 1)
  own <- c(x, target)
  Na <- drop(N[x, own] %*% a)
  V <- N[x, x] * drop(a %*% N[own, own] %*% a) + tcrossprod(Na)
  covariance <- solve(G[x, x], t(solve(G[x, x], V)))
  if (!is.null(release$scale)) {
    # in the user's units: y = c_y + s_y * sum(theta * (x - c) / s)
    back <- diag(release$scale[target] / release$scale[x])
    back[1, -1] <- -release$scale[target] * release$centre[x[-1]] / release$scale[x[-1]]
    theta <- drop(back %*% theta)
    theta[1] <- theta[1] + release$centre[target]
    covariance <- back %*% covariance %*% t(back)
  }
  error <- sqrt(diag(covariance))
  z <- stats::qnorm(1 - (1 - level) / 2)
  data.frame(
    term = x, estimate = unname(theta), std.error = unname(error), statistic = unname(theta / error),
    p.value = unname(2 * stats::pnorm(-abs(theta / error))),
    conf.low = unname(theta - z * error), conf.high = unname(theta + z * error)
  )
}
