# The one place where the command is run.

#' @noRd
option_words <- function(options) {
  words <- character()
  if (length(options) > 0 && (is.null(names(options)) || any(names(options) == ""))) {
    stop("A further option needs a name. Write dropouts = 0.1, for example.", call. = FALSE)
  }
  for (name in names(options)) {
    value <- options[[name]]
    flag <- paste0("--", gsub("_", "-", name, fixed = TRUE))
    if (is.null(value) || identical(value, FALSE)) next
    words <- c(words, flag, if (!identical(value, TRUE)) exact(value))
  }
  words
}

# Numbers to the last digit.
exact <- function(value) {
  if (inherits(value, "Date") || inherits(value, "POSIXt")) return(format(value))
  if (is.double(value)) return(vapply(value, shortest, ""))
  if (is.integer(value)) return(format(value, scientific = FALSE, trim = TRUE))
  as.character(value)
}

# The fewest digits that read as the same number again.
shortest <- function(number) {
  if (is.na(number)) return("NA")
  for (digits in 15:17) {
    text <- formatC(number, digits = digits, format = "g", width = 1)
    if (identical(as.double(text), as.double(number))) return(text)
  }
  text
}

find_command <- function() {
  named <- getOption("quietmean.command", Sys.getenv("QUIETMEAN_COMMAND", "quietmean"))
  path <- Sys.which(named)
  if (path == "") {
    stop("The command ", named, " is not here. Install it with pip, or name it: ",
         "options(quietmean.command = \"/path/to/quietmean\").", call. = FALSE)
  }
  unname(path)
}

#' Is the command here?
#'
#' @return TRUE where the command \code{quietmean} is found.
#' @export
qm_available <- function() !inherits(try(find_command(), silent = TRUE), "try-error")

# R names its own libraries before all others, among them an OpenSSL with which Python may not start. Errors name R's arguments.
environment_words <- c("current", LD_LIBRARY_PATH = "", NO_COLOR = "1", PYTHONUTF8 = "1",
                       QUIETMEAN_CALLER = "r")

# A sentence of the command as R says it: arguments for options, but where a line for the shell is quoted; no file for a data frame.
in_words_of_r <- function(sentence) {
  said <- gsub(FRAME_FILE, "the data frame", sentence, fixed = TRUE)
  said <- sub(", and that the first row of the file holds the names of its columns", "", said, fixed = TRUE)
  # A line for the shell ends where its sentence or clause does; a file of it may have a stop in its name.
  found <- gregexpr("quietmean [a-z]([^:;.,]|[:;.,](?! |$))*|--[a-z][a-z-]*", said, perl = TRUE)
  regmatches(said, found) <- lapply(regmatches(said, found), function(words) {
    option <- startsWith(words, "--")
    words[option] <- gsub("-", "_", substring(words[option], 3), fixed = TRUE)
    words
  })
  said
}

# What the command says besides its answer is a message; a refusal is an error of the class quietmean_error.
run_command <- function(words) {
  told <- function(line, process) message(in_words_of_r(line))
  done <- processx::run(find_command(), c(words, "--json"), error_on_status = FALSE, stderr_callback = NULL,
                        stderr_line_callback = if (interactive()) told, encoding = "UTF-8",
                        env = environment_words)
  document <- tryCatch(jsonlite::fromJSON(done$stdout, simplifyVector = FALSE), error = function(error) NULL)
  if (done$status != 0) {
    sentence <- document$error
    if (is.null(sentence)) sentence <- trimws(sub("^quietmean: ", "", done$stderr))
    stop(structure(class = c("quietmean_error", "error", "condition"),
                   list(message = in_words_of_r(sentence), call = NULL, status = done$status)))
  }
  for (line in strsplit(done$stderr, "\n", fixed = TRUE)[[1]]) {
    if (!interactive() && startsWith(line, "quietmean: ")) message(in_words_of_r(sub("^quietmean: ", "", line)))
  }
  document
}
