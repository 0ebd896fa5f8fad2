#' Read a receipt or a result
#'
#' @param path A receipt, or what a command printed with \code{--json}.
#' @return A result, as \code{\link{qm_run}} gives it.
#' @export
qm_read <- function(path) {
  if (!(is.character(path) && length(path) == 1)) stop("path is not the path of one file. Give one text.", call. = FALSE)
  if (!utils::file_test("-f", path)) stop("There is no file ", path, ". Check the path.", call. = FALSE)
  document <- tryCatch(jsonlite::read_json(path, simplifyVector = FALSE), error = function(error) NULL)
  inside <- function(name, from = document) if (is.list(from)) from[[name]]
  result <- if (is.null(inside("result"))) document else inside("result")
  if (is.null(inside("statistics", result))) {
    stop(path, " holds no result of a study. Give a receipt, or what a command printed with --json.", call. = FALSE)
  }
  if (is.character(inside("protocol"))) result$protocol <- inside("protocol")
  new_result(result)
}

new_result <- function(document) structure(document, class = "quietmean_result")

#' The numbers of a result
#'
#' \code{tidy}: a row for each term of each statistic; \code{glance}: one row with what was guaranteed and what was realised; \code{autoplot}:
#' estimates with their intervals (with ggplot2).
#'
#' @param x,object A result.
#' @param ... Not used.
#' @return A data frame. \code{std.error}, \code{conf.low} and \code{conf.high} are those of the population, with the noise in
#'   them, or of the noise alone if the study is about \code{"these records"}; the columns that begin with \code{noise} are those of the noise alone; \code{flag}: why a number is not to be taken
#'   at its word.
#' @importFrom generics tidy
#' @method tidy quietmean_result
#' @export
tidy.quietmean_result <- function(x, ...) {
  rows <- lapply(x$statistics, function(statistic) {
    terms <- unlist(statistic$terms)
    groups <- if (is.null(statistic$groups)) rep("", length(terms)) else unlist(statistic$groups)
    lapply(seq_along(terms), function(place) term_row(statistic, groups[[place]], terms[[place]]))
  })
  do.call(rbind, unlist(rows, recursive = FALSE))
}

term_row <- function(statistic, group, term) {
  own <- if (group == "") term else substring(term, nchar(group) + 2)
  stated <- function(field) at(statistic[[field]], group, own)
  flags <- Filter(function(flag) length(flag$terms) == 0 || term %in% unlist(flag$terms), statistic$flagged)
  codes <- unique(vapply(flags, function(flag) flag$code, ""))
  # A study about these records alone has no sampling error.
  these <- identical(statistic$population, "these records")
  quoted <- ends(stated(if (these) "interval_noise" else "interval_population"))
  noise <- ends(stated("interval_noise"))
  data.frame(
    name = statistic$name, term = term, estimate = number_of(stated("estimate")),
    std.error = number_of(stated(if (these) "standard_error" else "standard_error_population")),
    conf.low = quoted[[1]], conf.high = quoted[[2]],
    statistic = number_of(stated("test_statistic")), p.value = number_of(stated("p_value")), n = number_of(stated("n")),
    flag = if (length(codes) == 0) NA_character_ else paste(codes, collapse = ", "),
    noise.std.error = number_of(stated("standard_error")), noise.conf.low = noise[[1]], noise.conf.high = noise[[2]],
    since = text_of(stated("since"))
  )
}

# The value of one term, where values are given by term, and by group perhaps.
at <- function(by_term, group, own) {
  named <- function(value) is.list(value) && !is.null(names(value))
  if (named(by_term) && group != "") by_term <- by_term[[group]]
  if (named(by_term)) by_term[[own]] else by_term
}

ends <- function(interval) if (is.null(interval)) c(NA_real_, NA_real_) else vapply(interval, number_of, 0)

number_of <- function(value) {
  if (is.null(value)) return(NA_real_)
  if (is.character(value)) return(switch(value, inf = Inf, "-inf" = -Inf, NA_real_))
  as.double(value)
}

text_of <- function(value) if (is.null(value) || identical(value, "")) NA_character_ else as.character(value)

#' @rdname tidy.quietmean_result
#' @importFrom generics glance
#' @method glance quietmean_result
#' @export
glance.quietmean_result <- function(x, ...) {
  certificate <- x$certificate
  data.frame(
    protocol = text_of(x$protocol), unit = text_of(certificate$unit), parties = number_of(x$parties_counted),
    epsilon.guaranteed = number_of(x$epsilon_a_priori), epsilon.realised = number_of(x$epsilon), delta = number_of(x$delta),
    adversary = text_of(certificate$adversary), neighbouring = text_of(certificate$neighbouring)
  )
}

#' @rdname tidy.quietmean_result
#' @export
print.quietmean_result <- function(x, ...) {
  table <- tidy(x)
  shown <- table[, c("name", "term", "estimate", "conf.low", "conf.high")]
  if (any(!is.na(table$flag))) shown$flag <- ifelse(is.na(table$flag), "", table$flag)
  print(shown, row.names = FALSE, digits = 5)
  cat(privacy_lines(x), sep = "\n")
  invisible(x)
}

# Epsilon is rounded up.
privacy_lines <- function(x) {
  certificate <- x$certificate
  promise <- glance(x)
  shown <- function(epsilon) sprintf("%.2f", ceiling(epsilon * 100 - 1e-9) / 100)
  of_delta <- paste0(" (delta ", sub("e-0", "e-", format(promise$delta)), ")")
  if (is.finite(promise$epsilon.guaranteed)) {
    against <- if (is.null(certificate$against)) promise$adversary else certificate$against
    said <- paste0("epsilon ", shown(promise$epsilon.guaranteed), of_delta, " per ", promise$unit, ", guaranteed, against ", against)
  } else if (is.finite(promise$epsilon.realised)) {
    said <- paste0("epsilon ", shown(promise$epsilon.realised), " realised", of_delta, "; nothing was guaranteed beforehand")
  } else {
    said <- "no bound, neither guaranteed nor realised"
  }
  whole <- identical(number_of(certificate$whole_party_epsilon), Inf)
  each <- if (is.finite(promise$epsilon.guaranteed) || is.finite(promise$epsilon.realised)) {
    paste0("Each ", promise$unit, " is protected. A site as a whole is not.")
  } else {
    "A site as a whole is not protected."
  }
  c(paste("Privacy  ", said), if (whole) paste("! SITE      ", each))
}

# Registered where ggplot2 is loaded.
#' @rdname tidy.quietmean_result
#' @exportS3Method ggplot2::autoplot
autoplot.quietmean_result <- function(object, ...) {
  table <- tidy(object)
  table <- table[is.finite(table$estimate), ]
  table$label <- factor(table$term, levels = rev(unique(table$term)))
  ggplot2::ggplot(table, ggplot2::aes(x = .data$estimate, y = .data$label)) +
    ggplot2::geom_linerange(ggplot2::aes(xmin = .data$conf.low, xmax = .data$conf.high), na.rm = TRUE) +
    ggplot2::geom_point() +
    ggplot2::facet_wrap(ggplot2::vars(.data$name), scales = "free") +
    ggplot2::labs(x = "estimate and 95 % interval, noise included", y = NULL)
}

utils::globalVariables(".data")

#' @export
generics::tidy

#' @export
generics::glance
