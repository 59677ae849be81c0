# Least squares from a release, with standard errors that account for the privacy noise. The formulas are those of
# gaussmix (docs/inference.md), whose numbers are reproduced.

SIGNAL <- 3 # standard errors by which every direction of the columns kept must stand above the noise

#' Regress a column of a release on others
#'
#' `ols(release, cost ~ age + region)`, or `ols(release, "cost", c("age", "region"))`. Intervals are for the coefficients
#' of the table. Columns that are not identified at this budget are left out, and their coefficients are NA.
#'
#' `reference` is a named vector of reference levels, c(region = "north"); by default the first level of each category,
#' or its largest if the first is rare.
ols <- function(release, response, predictors = NULL, reference = NULL) {
  stopifnot(inherits(release, "gaussmix_release"))
  if (inherits(response, "formula")) {
    if (!is.null(predictors)) stop("Give a formula, or a response and predictors.", call. = FALSE)
    if (length(response) != 3 || !is.name(response[[2]])) stop("The formula must be y ~ x1 + x2.", call. = FALSE)
    if (!identical(response[[3]], quote(.))) {
      parsed <- terms(response)
      predictors <- attr(parsed, "term.labels")
      predictors <- sub("^`(.*)`$", "\\1", predictors)
      if (attr(parsed, "intercept") == 0 || any(attr(parsed, "order") > 1)) {
        stop("The formula must be y ~ x1 + x2, with an intercept and without products.", call. = FALSE)
      }
    }
    response <- as.character(response[[2]])
  }
  at <- chosen(release, response, predictors, reference)
  M <- release$M[c(at$x, at$y), c(at$x, at$y)]
  N <- release$N[c(at$x, at$y), c(at$x, at$y)]
  noise <- any(N != 0)
  kept <- identified(M, N, at$intercept)
  fit <- least_squares(M, N, kept, release$clipping_bias)
  mean_fit <- least_squares(M, N, if (at$intercept && M[1, 1] > 0) 1L else integer(), release$clipping_bias)

  # In the units of the table: y = centre_y + scale_y * sum(theta * (x - centre) / scale).
  d <- length(at$x)
  scale <- release$scale[at$x]
  to_user <- diag(release$scale[at$y] / scale, d)
  offset <- rep(0, d)
  if (at$intercept) {
    to_user[1, -1] <- -release$scale[at$y] * release$centre[at$x[-1]] / scale[-1]
    offset[1] <- release$centre[at$y]
  }
  estimate <- drop(to_user %*% fit$theta) + offset
  covariance <- to_user %*% fit$covariance %*% t(to_user)
  out <- setdiff(seq_len(d), kept)
  estimate[out] <- NA
  covariance[out, ] <- NA
  covariance[, out] <- NA
  names <- release$names[at$x]
  dimnames(covariance) <- list(names, names)
  count <- if (at$intercept) release$weight_bound * scale[1]^2 * M[1, 1] else NA
  residual <- mean_fit$residual
  structure(
    list(
      response = response, coefficients = setNames(estimate, names), covariance = covariance,
      left_out = names[out], references = at$references, nobs = unname(count),
      r.squared = if (residual > 0) min(max(1 - fit$residual / residual, 0), 1) else 0,
      beats_mean = length(kept) > 0 && residual > 0 && fit$risk <= (1 + 1e-9) * mean_fit$risk,
      weighted = nzchar(release$weighted), notes = c(release$void, estimated_on(release, sort(c(at$x, at$y)))), epsilon = release$epsilon, delta = release$delta
    ),
    class = "gaussmix_ols"
  )
}

# Encoded columns of the response and of the predictors, the intercept first and reference levels left out.
chosen <- function(release, response, predictors, reference) {
  parts <- unique(release$part[nzchar(release$part)])
  known <- function(names, what) {
    if (!is.character(names) || anyNA(names) || anyDuplicated(names)) {
      stop(what, " must be names of columns, each once.", call. = FALSE)
    }
    missing <- setdiff(names, parts)
    if (length(missing)) {
      stop(what, ": there is no column '", escaped(missing[1]), "'. The columns are ",
           paste(escaped(parts), collapse = ", "), ".", call. = FALSE)
    }
    derived <- names[!release$model[match(names, release$part)]]
    if (length(derived)) {
      stop(what, ": '", escaped(derived[1]), "' is a term or has an indicator of missing values, which this package ",
           "does not fit. Use gaussmix ols.", call. = FALSE)
    }
    names
  }
  if (length(response) != 1) stop("response must be one column.", call. = FALSE)
  y <- which(release$part == known(response, "response"))
  if (length(y) != 1 || !release$kind[y] %in% c("numeric", "boolean")) {
    stop("response must be a numeric or boolean column.", call. = FALSE)
  }
  if (is.null(predictors)) {
    if (release$derived) stop("List the predictors: the release has terms, which this package does not fit.", call. = FALSE)
    predictors <- setdiff(parts, response)
  }
  if (response %in% known(predictors, "predictors")) stop("The response cannot be a predictor.", call. = FALSE)
  if (!length(predictors)) stop("At least one predictor is required.", call. = FALSE)
  intercept <- which(release$kind == "intercept")
  left <- release$reference
  for (name in names(reference)) {
    own <- which(release$part == name & release$kind == "level")
    level <- own[release$names[own] == paste0(name, "=", reference[[name]])]
    if (!name %in% predictors || !length(level) || !length(intercept)) {
      stop("reference: '", escaped(paste0(name, "=", reference[[name]])), "' is not a level of a predictor.", call. = FALSE)
    }
    left[own] <- own == level
  }
  of_model <- release$part %in% predictors
  x <- c(intercept, which(of_model & !left))
  list(x = x, y = y, intercept = length(intercept) > 0, references = release$names[of_model & left])
}

# Columns kept: while the weakest direction is less than SIGNAL standard errors above its noise, the column with the
# largest part in it is left out, never the intercept. The last row and column are those of the response.
identified <- function(M, N, intercept) {
  d <- nrow(M) - 1
  M <- M[1:d, 1:d, drop = FALSE]
  N <- N[1:d, 1:d, drop = FALSE]
  if (!any(N != 0)) N <- diag(1e-10 * pmax(diag(M), 1e-300), d)
  unit <- 1 / sqrt(diag(N))
  M <- M * outer(unit, unit)
  N <- N * outer(unit, unit) + 1e-13 * diag(d)
  kept <- seq_len(d)
  while (length(kept)) {
    root <- chol(N[kept, kept, drop = FALSE])
    half <- backsolve(root, M[kept, kept, drop = FALSE], transpose = TRUE)
    white <- backsolve(root, t(half), transpose = TRUE)
    found <- eigen((white + t(white)) / 2, symmetric = TRUE)
    last <- length(kept)
    if (found$values[last] / sqrt(2) >= SIGNAL) break
    part <- abs(backsolve(root, found$vectors[, last]))
    if (intercept && last > 1) part[1] <- 0
    kept <- kept[-which.max(part)]
  }
  kept
}

# theta and its covariance C = (1 + B^2) M^-1 V M^-1, V = N_xx (a' N a) + (N a)_x (N a)_x', a = (-theta, 1); and the
# residual sum of squares, to which the fitted part of the noise, tr(M C), is added (once for the coefficients of the
# table, twice for predictions with theta).
least_squares <- function(M, N, kept, bias) {
  d <- nrow(M) - 1
  x <- seq_len(d)
  inverse <- matrix(0, d, d)
  if (length(kept)) inverse[kept, kept] <- solve(M[kept, kept])
  inverse <- (inverse + t(inverse)) / 2
  theta <- drop(inverse %*% M[x, d + 1])
  a <- c(-theta, 1)
  Na <- drop(N %*% a)
  V <- N[x, x] * sum(a * Na) + tcrossprod(Na[x])
  C <- inverse %*% V %*% inverse
  fitted <- sum(M[x, x] * C)
  plain <- drop(a %*% M %*% a)
  list(theta = theta, covariance = (1 + bias^2) * C, residual = plain + fitted, risk = plain + 2 * fitted)
}

# Which table the coefficients are of: the first line of every summary of gaussmix.
estimated_on <- function(release, columns) {
  changes <- c(release$weighted, unique(release$coded[columns]))
  changes <- changes[nzchar(changes)]
  if (length(changes)) paste0("Estimated on the table with ", paste(changes, collapse = "; "), ".") else ""
}
