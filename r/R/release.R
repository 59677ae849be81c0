# A release of gaussmix: the noisy second moment M of encoded rows, the shape N of its noise, and the units of columns.
# Entries of M have covariance N[i,k] N[j,l] + N[i,l] N[j,k]. An encoded entry is (x - centre) / scale.

FORMAT <- "1"

#' Read a release
#'
#' Files of `gaussmix export RELEASE FILE.csv --to r` are read directly. Releases (Parquet files) are first exported by
#' the command `gaussmix`, which also verifies them, if it is installed.
read_release <- function(file, gaussmix = "gaussmix") {
  if (!file.exists(file)) stop("There is no file ", file, ".", call. = FALSE)
  if (identical(readBin(file, "raw", 4), charToRaw("PAR1"))) {
    if (!nzchar(Sys.which(gaussmix))) {
      stop("A Parquet file is read with the command gaussmix, which was not found. Export the release where gaussmix ",
           "is installed: gaussmix export RELEASE FILE.csv --to r", call. = FALSE)
    }
    out <- tempfile(fileext = ".csv")
    on.exit(unlink(out))
    # R's own library path may hold another build of Python's library.
    env <- if (.Platform$OS.type == "unix") "LD_LIBRARY_PATH=" else character()
    said <- suppressWarnings(system2(gaussmix, c("export", shQuote(normalizePath(file)), shQuote(out), "--to", "r"),
                                     stdout = TRUE, stderr = TRUE, env = env))
    if (!file.exists(out)) stop(paste(said, collapse = "\n"), call. = FALSE)
    file <- out
  }
  cells <- read.csv(file, header = FALSE, colClasses = "character", na.strings = character(), encoding = "UTF-8",
                    strip.white = FALSE, blank.lines.skip = FALSE)
  cells <- unquoted(as.matrix(cells))
  key <- cells[, 1]
  columns <- unname(cells[1, -1])
  one <- function(name) {
    if (sum(key == name) != 1) {
      stop(file, " is not a release for R. Write it with: gaussmix export RELEASE FILE.csv --to r", call. = FALSE)
    }
    unname(cells[key == name, -1])
  }
  if (one("format")[1] != FORMAT) {
    stop(file, " has format ", one("format")[1], ", and this package reads format ", FORMAT, ".", call. = FALSE)
  }
  number <- function(name) {
    found <- suppressWarnings(as.numeric(one(name)[1]))
    if (is.na(found)) stop(file, " is damaged: ", name, " is not a number.", call. = FALSE)
    found
  }
  numbers <- function(rows) {
    found <- suppressWarnings(matrix(as.numeric(rows), ncol = length(columns), dimnames = list(NULL, columns)))
    if (anyNA(found)) stop(file, " is damaged: a cell is not a number.", call. = FALSE)
    found
  }
  square <- function(name) {
    found <- numbers(cells[key == name, -1, drop = FALSE])
    if (nrow(found) != length(columns) || !isSymmetric(unname(found))) {
      stop(file, " is damaged: ", name, " is not a symmetric matrix.", call. = FALSE)
    }
    rownames(found) <- columns
    found
  }
  structure(
    list(
      names = columns, M = square("M"), N = square("N"),
      centre = drop(numbers(one("centre"))), scale = drop(numbers(one("scale"))),
      part = one("part"), kind = one("kind"), model = one("model") == "1", reference = one("reference") == "1",
      coded = one("coded"), weighted = one("weighted")[1], void = one("void")[1], derived = one("derived")[1] == "1",
      clipping_bias = number("clipping_bias"), weight_bound = number("weight_bound"),
      epsilon = number("epsilon"), delta = number("delta")
    ),
    class = "gaussmix_release"
  )
}

# Text that a spreadsheet would take for a formula has a single quote in front in the file.
unquoted <- function(text) {
  text[] <- sub("^'([-=+@\t\r\n])", "\\1", text)
  text
}

print.gaussmix_release <- function(x, ...) {
  if (nzchar(x$void)) cat(escaped(x$void), "\n", sep = "")
  cat("gaussmix release, epsilon = ", format(x$epsilon), ", delta = ", format(x$delta), "\n", sep = "")
  parts <- unique(x$part[nzchar(x$part)])
  cat("columns: ", paste(escaped(parts), collapse = ", "), "\n", sep = "")
  invisible(x)
}

# Control characters in names would act on the terminal.
escaped <- function(text) gsub("[[:cntrl:]]", "?", text)
