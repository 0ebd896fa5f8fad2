#' Run a whole study on this machine
#'
#' All parties run here, with the real protocol and real noise: for one who has all the data, and to rehearse.
#'
#' @param data A data frame, a path, or the address of a database.
#' @param ask The questions, each with what can stand in its columns: \code{"mean(age in 0..110)"},
#'   \code{"group-means(age in 0..110, by=sex in {f, m})"}, \code{"proportion(smoker in yes/no)"}. Bounds and levels are public:
#'   choose them without looking at the data. A column that no question names is not read.
#' @param parties How many parties the rows are dealt out to; or
#' @param party_column the column that says which party a row belongs to.
#' @param epsilon,delta The promise for one unit, (epsilon, delta)-differential privacy under replacement. Without epsilon it is 1;
#'   for first looks alone a tenth of the budget of epsilon 1, so that the study after them has the rest.
#' @param out A new folder for receipt and report.
#' @param ... Further options of \code{quietmean run}, with underscores: \code{dropouts = 0.1}, \code{unit = "party"},
#'   \code{protocol = "cordp-dme"}.
#' @return A result: print it, or take its numbers by \code{tidy} and \code{glance}.
#' @examples
#' \dontrun{
#' result <- qm_run(infert, "mean(age in 15..50)", parties = 5, epsilon = 2)
#' tidy(result)
#' }
#' @export
qm_run <- function(data, ask, ..., parties = NULL, party_column = NULL, epsilon = NULL, delta = 1e-6,
                   out = tempfile("quietmean-run-")) {
  if (!(is.character(ask) && length(ask) > 0 && !anyNA(ask))) {
    stop("ask is not a question. Write ask = \"mean(age in 0..110)\", or several with c().", call. = FALSE)
  }
  # What stands behind the dots is named in full: party = is not party_column.
  options <- option_words(list(parties = parties, party_column = party_column, epsilon = epsilon, delta = delta, out = out, ...))
  with_data(data, function(file) new_result(run_command(c("run", file, ask, options))))
}

#' Compare protocols before a study, or plan one
#'
#' @param parties How many.
#' @param epsilon,delta The promise for one unit; a study says them itself.
#' @param ask Questions, as in \code{\link{qm_run}}: how wide their intervals will be; or
#' @param study a study file.
#' @param records With questions or a study: how many records all parties have together, as far as is public.
#' @param population With questions: \code{"these records"} for intervals of the noise alone, as for a register.
#' @param ... Further options of \code{quietmean plan}.
#' @return A data frame. Without questions a line for each protocol: the mean squared error that is predicted, who trusts whom,
#'   messages and bytes of one party. With questions a line for each statistic: the widths of its 95 \% interval and of the noise's
#'   alone, from the narrowest to the widest, and the power of its test.
#' @export
qm_plan <- function(parties, ..., epsilon = 1, delta = 1e-6, ask = NULL, study = NULL, records = NULL,
                    population = NULL) {
  if (!is.null(ask)) {
    study <- tempfile("study-", fileext = ".toml")
    on.exit(unlink(study), add = TRUE)
    run_command(c("study", "new", ask, option_words(list(
      name = "plan", epsilon = epsilon, delta = delta, population = population, out = study))))
  }
  if (is.null(ask) && !is.null(population)) {
    stop("population goes with ask. A study says it itself: leave it out.", call. = FALSE)
  }
  asked <- if (is.null(study)) list(epsilon = epsilon, delta = delta) else list(study = study, records = records)
  document <- run_command(c("plan", option_words(c(list(parties = parties), asked, list(...)))))
  if (!is.null(study)) return(do.call(rbind, lapply(document$expected, width_row)))
  rows <- lapply(document$candidates, function(candidate) data.frame(
    protocol = text_of(candidate$protocol), mse = number_of(candidate$mse), trust = text_of(candidate$trust),
    rounds = number_of(candidate$rounds), messages = number_of(candidate$messages_per_party),
    bytes = number_of(candidate$bytes_per_party), epsilon = number_of(candidate$epsilon_a_priori)))
  do.call(rbind, rows)
}

width_row <- function(expected) {
  noise <- ends(expected$width_noise)
  width <- if (is.null(expected$width_population)) noise else ends(expected$width_population)
  data.frame(
    name = text_of(expected$name), term = text_of(expected$term), width.low = width[[1]], width.high = width[[2]],
    noise.width.low = noise[[1]], noise.width.high = noise[[2]], power = number_of(expected$power))
}

#' Take part in a study
#'
#' Over the network or through a folder, until the study has ended; \code{qm_send} writes the one file of a study by
#' file or with a committee; \code{qm_result} checks and opens what a committee made.
#'
#' @param study The signed study, or a study file.
#' @param data This party's records: a data frame, a path, or the address of a database. They never leave this machine.
#' @param key The file with this party's private key.
#' @param account What your budget calls the people of these data, in whatever file they come.
#' @param out Where to write the contribution.
#' @param files What was opened: members' \code{.sums} files.
#' @param ... Further options of \code{quietmean join}, \code{send} or \code{result}: \code{accept} with the digest of
#'   the terms, \code{new_account}, \code{no_ledger}, \code{store}.
#' @return \code{qm_join} and \code{qm_result} a result; \code{qm_send} the path of the file, invisibly.
#' @export
qm_join <- function(study, data, key = "quietmean.key", account = NULL, ...) {
  words <- c("join", study, option_words(list(key = key, account = named_account(data, account, ...), ...)))
  with_data(data, function(file) new_result(run_command(c(words, "--data", file))))
}

#' @rdname qm_join
#' @export
qm_send <- function(study, data, key = "quietmean.key", out = NULL, account = NULL, ...) {
  words <- c("send", study, option_words(list(key = key, out = out, account = named_account(data, account, ...), ...)))
  document <- with_data(data, function(file) run_command(c(words, "--data", file)))
  invisible(document$contribution)
}

#' @rdname qm_join
#' @export
qm_result <- function(study, files, ...) {
  new_result(run_command(c("result", study, files, option_words(list(...)))))
}

# A data frame does not say which data set it is of, and the file that it goes in has no name that lasts.
named_account <- function(data, account, new_account = NULL, no_ledger = FALSE, ...) {
  if (is.data.frame(data) && is.null(account) && is.null(new_account) && !no_ledger) {
    stop("A data frame does not say which data set it is. Give account = \"NAME\", the same in all studies, or no_ledger = TRUE.",
         call. = FALSE)
  }
  account
}

#' Make up rows that are like the records of a study
#'
#' The study asked for a synthetic table. It costs no privacy: all follows from the receipt, and everybody gets the same rows.
#' What they are good for is printed. A row may equal a real person's by chance.
#'
#' @param receipt The receipt of the study.
#' @param rows How many rows; by default as many as there are records.
#' @return A data frame.
#' @examples
#' \dontrun{
#' qm_run(infert, "synthetic-table(age in 15..50, case in yes/no)", parties = 5, epsilon = 4, out = "first")
#' qm_synthesize("first/receipt.json")
#' }
#' @export
qm_synthesize <- function(receipt, rows = NULL) {
  file <- tempfile("synthetic-", fileext = ".csv")
  on.exit(unlink(file), add = TRUE)
  made <- run_command(c("study", "synthesize", receipt, option_words(list(rows = rows, out = file))))
  message(paste(unlist(made$about), collapse = "\n"))
  utils::read.csv(file, na.strings = "", fileEncoding = "UTF-8", check.names = FALSE)
}

#' Write an entry for the public registry of differential privacy deployments
#'
#' Figures are computed again from the receipt. What only people know stays empty, and is printed.
#'
#' @param receipt The receipt of a study.
#' @param out Where to write the entry: \code{FILE.yaml}. An existing file stays as it is.
#' @return The path of the file, invisibly.
#' @examples
#' \dontrun{
#' qm_run(infert, "mean(age in 15..50)", parties = 5, out = "first")
#' qm_registry_entry("first/receipt.json")
#' }
#' @export
qm_registry_entry <- function(receipt, out = "entry.yaml") {
  made <- run_command(c("verify", "receipt", receipt, option_words(list(report = out))))
  message(paste0("Fill in ", paste(unlist(made$registry_entry$empty), collapse = ", "), "."))
  invisible(out)
}

#' Make up a table of a study, to try programs on
#'
#' It costs no privacy, and everybody gets the same one. Columns are within their bounds and levels, some cells missing.
#'
#' @param ask Questions, as in \code{\link{qm_run}}; or
#' @param study a study file.
#' @param rows How many rows.
#' @return A data frame.
#' @examples
#' \dontrun{
#' qm_mock("group-means(age in 15..50, by=sex in {f, m})", rows = 100)
#' }
#' @export
qm_mock <- function(ask = NULL, study = NULL, rows = 500) {
  if (is.null(ask) == is.null(study)) {
    stop("ask and study: one of them says what the table is of. Give ask = QUESTIONS, or study = FILE.", call. = FALSE)
  }
  if (!is.null(ask)) {
    study <- tempfile("study-", fileext = ".toml")
    on.exit(unlink(study), add = TRUE)
    run_command(c("study", "new", ask, option_words(list(name = "mock", epsilon = 1, delta = 1e-6, out = study))))
  }
  file <- tempfile("mock-", fileext = ".csv")
  on.exit(unlink(file), add = TRUE)
  run_command(c("study", "mock", study, option_words(list(rows = rows, out = file))))
  utils::read.csv(file, na.strings = "", fileEncoding = "UTF-8", check.names = FALSE)
}
