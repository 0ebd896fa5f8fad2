FRAME_FILE <- "data-frame.csv"

# Data frames go to the command in a file that only this user reads, and that is removed when the command has ended.

with_data <- function(data, use) {
  if (!is.data.frame(data)) {
    if (!(is.character(data) && length(data) == 1)) {
      stop("data is of another kind. Give a data frame, one path, or the address of a database.", call. = FALSE)
    }
    return(use(data))
  }
  folder <- tempfile("quietmean-")
  dir.create(folder, mode = "0700")
  on.exit(unlink(folder, recursive = TRUE), add = TRUE)
  file <- file.path(folder, FRAME_FILE)
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
      stop("Column ", name, " holds lists or a matrix. Give one value a row.", call. = FALSE)
    }
    empty <- is.na(column)
    cells <- if (is.logical(column)) ifelse(column, "true", "false") else exact(column)
    data[[name]] <- ifelse(empty, NA, cells)
  }
  data
}
