# Data frames go to the command in a file that only this user reads, and that is removed when the command has ended.

with_data <- function(data, use) {
  if (!is.data.frame(data)) {
    if (!(is.character(data) && length(data) == 1)) {
      stop("data is neither a data frame nor one path or address of a database", call. = FALSE)
    }
    return(use(data))
  }
  folder <- tempfile("quietmean-")
  dir.create(folder, mode = "0700")
  on.exit(unlink(folder, recursive = TRUE), add = TRUE)
  file <- file.path(folder, "data.csv")
  before <- Sys.umask("077")
  on.exit(Sys.umask(before), add = TRUE)
  utils::write.table(written(data), file, sep = ",", row.names = FALSE, qmethod = "double", na = "", fileEncoding = "UTF-8")
  use(file)
}

written <- function(data) {
  data <- as.data.frame(data)
  for (name in names(data)) {
    column <- data[[name]]
    if (is.list(column) || is.matrix(column)) {
      stop("column ", name, " holds lists or a matrix: give one value a row", call. = FALSE)
    }
    empty <- is.na(column)
    cells <- if (is.logical(column)) ifelse(column, "true", "false") else exact(column)
    data[[name]] <- ifelse(empty, NA, cells)
  }
  data
}

#' Columns of a study
#'
#' What is said of a column before anybody looks at the data: it is public.
#'
#' @param low,high Public bounds of numbers, in their units, chosen without looking at the data.
#' @param ... \code{qm_levels}: what can stand in the column.
#' @param first,last Public bounds of dates.
#' @param transform A public transform of earlier columns, such as \code{"log(crp)"} or \code{"bmi >= 30"}.
#' @return The options of one column, for the list \code{columns} of \code{\link{qm_run}}.
#' @export
qm_bounds <- function(low, high) {
  if (!(is.numeric(low) && is.numeric(high) && length(low) == 1 && length(high) == 1)) {
    stop("low and high are one number each, such as qm_bounds(0, 100)", call. = FALSE)
  }
  c("--bounds", exact(as.double(low)), exact(as.double(high)))
}

#' @rdname qm_bounds
#' @export
qm_levels <- function(...) c("--levels", as.character(c(...)))

#' @rdname qm_bounds
#' @export
qm_boolean <- function() "--boolean"

#' @rdname qm_bounds
#' @export
qm_dates <- function(first, last) c("--dates", format(as.Date(first)), format(as.Date(last)))

#' @rdname qm_bounds
#' @export
qm_from <- function(transform) c("--from", transform)

column_words <- function(columns) {
  if (length(columns) == 0 || is.null(names(columns)) || any(names(columns) == "")) {
    stop("columns is a list with a name for each column, such as list(age = qm_bounds(0, 100))", call. = FALSE)
  }
  for (name in names(columns)) {
    said <- columns[[name]]
    if (!(is.character(said) && length(said) > 0 && startsWith(said[[1]], "--"))) {
      stop("column ", name, ": say what can stand in it with qm_bounds(0, 100), qm_levels(\"f\", \"m\"), qm_boolean(), ",
           "qm_dates(...) or qm_from(...)", call. = FALSE)
    }
  }
  unlist(lapply(names(columns), function(name) c("--column", name, columns[[name]])))
}
