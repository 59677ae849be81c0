# Methods of fitted models: all of them from one normal distribution of the coefficients.

coef.gaussmix_ols <- function(object, ...) object$coefficients

vcov.gaussmix_ols <- function(object, ...) object$covariance

nobs.gaussmix_ols <- function(object, ...) object$nobs

confint.gaussmix_ols <- function(object, parm, level = 0.95, ...) {
  if (!is.numeric(level) || length(level) != 1 || !(level > 0 && level < 1)) {
    stop("level must be a number between 0 and 1.", call. = FALSE)
  }
  half <- qnorm((1 + level) / 2) * standard_errors(object)
  ends <- c((1 - level) / 2, (1 + level) / 2)
  found <- cbind(object$coefficients - half, object$coefficients + half)
  colnames(found) <- paste(format(100 * ends, trim = TRUE, digits = 3), "%")
  if (missing(parm)) found else found[parm, , drop = FALSE]
}

summary.gaussmix_ols <- function(object, level = 0.95, ...) {
  error <- standard_errors(object)
  estimate <- object$coefficients
  t <- estimate / error
  table <- cbind(estimate, error, t, 2 * pnorm(-abs(t)), confint(object, level = level))
  colnames(table) <- c("Estimate", "Std. Error", "z value", "Pr(>|z|)", colnames(confint(object, level = level)))
  structure(list(coefficients = table, model = object), class = "summary.gaussmix_ols")
}

print.summary.gaussmix_ols <- function(x, digits = 4, ...) {
  model <- x$model
  for (note in model$notes[nzchar(model$notes)]) cat(escaped(note), "\n", sep = "")
  if (!model$beats_mean) cat("At this budget, this model predicts no better than the mean of the response.\n")
  cat("\n", escaped(model$response), ":\n", sep = "")
  table <- x$coefficients
  rownames(table) <- escaped(rownames(table))
  print(table, digits = digits, na.print = "")
  weights <- if (model$weighted) ", with these row weights; the unweighted fit may lie outside" else ""
  cat("\nIntervals are for the least-squares coefficients of this table", weights,
      ". They do not include sampling error.\n", sep = "")
  if (length(model$references)) cat("Reference levels: ", paste(escaped(model$references), collapse = ", "), ".\n", sep = "")
  if (length(model$left_out)) {
    cat("Not identified at this budget, left out: ", paste(escaped(model$left_out), collapse = ", "), ".\n", sep = "")
  }
  cat("R-squared: ", format(model$r.squared, digits = 3), "\n", sep = "")
  invisible(x)
}

print.gaussmix_ols <- function(x, ...) {
  print(summary(x), ...)
  invisible(x)
}

# broom: one row per coefficient, the names of gaussmix's tidy().
tidy.gaussmix_ols <- function(x, conf.int = TRUE, conf.level = 0.95, ...) {
  table <- summary(x, level = conf.level)$coefficients
  found <- data.frame(term = rownames(table), estimate = table[, 1], std.error = table[, 2], statistic = table[, 3],
                      p.value = table[, 4], row.names = NULL)
  if (conf.int) found <- cbind(found, conf.low = unname(table[, 5]), conf.high = unname(table[, 6]))
  found
}

glance.gaussmix_ols <- function(x, ...) {
  data.frame(r.squared = x$r.squared, nobs = x$nobs, epsilon = x$epsilon, delta = x$delta)
}

standard_errors <- function(object) sqrt(pmax(diag(object$covariance), 0))
