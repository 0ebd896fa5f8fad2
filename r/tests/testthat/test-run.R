by_education <- "group-means(age in 15..50, by=education in {0-5yrs, 6-11yrs, 12+ yrs})"
women <- transform(infert, case = case == 1)

test_that("a study is run, and its numbers are tidy", {
  skip_if_not(qm_available(), "the command quietmean is not here")
  result <- suppressMessages(qm_run(women, c("mean(age)", by_education), parties = 5, epsilon = 4))
  terms <- tidy(result)
  expect_equal(terms$name[[1]], "mean(age)")
  expect_true(all(c("0-5yrs", "6-11yrs", "12+ yrs") %in% terms$term))
  # Where noise hides a term it has no interval.
  expect_true(all(terms$conf.low < terms$conf.high, na.rm = TRUE))
  promise <- glance(result)
  expect_equal(promise$unit, "record")
  expect_lte(promise$epsilon.guaranteed, 4)
  expect_identical(tidy(qm_read(result$receipt)), terms)
  expect_identical(glance(qm_read(result$receipt)), promise)
  expect_output(print(result), "Privacy +epsilon 4.00 \\(delta 1e-6\\) per record, guaranteed, against .*\n! SITE")
  skip_if_not_installed("ggplot2")
  expect_s3_class(ggplot2::autoplot(result), "ggplot")
})

test_that("first looks alone leave nine tenths of the budget", {
  skip_if_not(qm_available(), "the command quietmean is not here")
  look <- suppressMessages(qm_run(data.frame(age = rep(20:59, 100)), "first-look(age)", parties = 3))
  expect_lt(glance(look)$epsilon.guaranteed, 0.5)
})

test_that("a mistake is an R error with the sentence", {
  skip_if_not(qm_available(), "the command quietmean is not here")
  asked <- "mean(age in 15..50)"
  refused <- function(call, words) expect_error(call, words, class = "quietmean_error")
  # No option, no file and no temporary name stands in a sentence of R.
  of_r <- function(call, words) {
    said <- conditionMessage(refused(call, words))
    expect_no_match(gsub("quietmean [^:;.,]*", "", said), "--|\\.csv|first row of the file")
  }
  of_r(qm_run(women, "mean(agee in 15..50)", parties = 5), "'agee' is not one of the 8 columns of the data frame")
  of_r(qm_run(women, "mean(age)", parties = 5), "LOW..HIGH")
  of_r(qm_run(women, "mean(age in 50..15)", parties = 5), "15..50")
  of_r(qm_run(women, asked), "parties = N or party_column = NAME")
  of_r(qm_run(women, asked, parties = 5, dropout_s = 0.1), "dropout_s is not an option of run.*mean dropouts")
  of_r(qm_run(women, "mean(education in 0..5)", parties = 5), "no cell of the data frame holds a number")
  of_r(qm_plan(5, ask = "mean(age in 50..15)"), "15..50")
  for (wrong in list(3, NULL, NA_character_, character(), list("mean(age in 15..50)"))) {
    expect_error(qm_run(women, wrong, parties = 5), "ask is not a question")
  }
})

test_that("protocols are compared", {
  skip_if_not(qm_available(), "the command quietmean is not here")
  table <- suppressMessages(qm_plan(20, epsilon = 1))
  expect_true("cordp-dme" %in% table$protocol)
  expect_true(all(table$mse > 0, na.rm = TRUE))
})

test_that("a question says what stands in its column, and no argument stands for another one", {
  skip_if_not(qm_available())
  result <- suppressMessages(qm_run(women, "mean(age in 15..50)", parties = 5, epsilon = 4))
  expect_equal(tidy(result)$name, "mean(age)")
  expect_error(qm_run(women, "mean(age in 15..50)", party = "education"), "party", class = "quietmean_error")
})

test_that("a study is planned with the widths of its intervals", {
  skip_if_not(qm_available())
  asked <- suppressMessages(qm_plan(5, ask = "mean(age in 15..50)", records = 2000, epsilon = 4))
  expect_equal(asked$name, "mean(age)")
  study <- tempfile(fileext = ".toml")
  writeLines(c("[study]", "name = \"ages\"", "epsilon = 4.0", "delta = 1e-6", "[[column]]", "name = \"age\"",
               "low = 15", "high = 50", "missing = \"indicator\"", "[[statistic]]", "kind = \"mean\"", "column = \"age\""), study)
  table <- suppressMessages(qm_plan(parties = 5, study = study, records = 2000))
  expect_equal(table$name, "mean(age)")
  expect_equal(table, asked)
  these <- suppressMessages(qm_plan(5, ask = "mean(age in 15..50)", records = 2000, epsilon = 4, population = "these records"))
  expect_equal(c(these$width.low, these$width.high), c(these$noise.width.low, these$noise.width.high))
  expect_error(qm_plan(5, population = "these records"), "population goes with ask")
  expect_true(table$noise.width.low > 0 && table$width.high >= table$noise.width.low)
})

test_that("a table is made up for questions, and a study reads it", {
  skip_if_not(qm_available(), "the command quietmean is not here")
  made <- qm_mock(c("mean(age in 15..50)", by_education), rows = 60)
  expect_equal(dim(made), c(60, 2))
  expect_true(all(made$age >= 15 & made$age <= 50, na.rm = TRUE))
  expect_identical(qm_mock(c("mean(age in 15..50)", by_education), rows = 60), made)
  expect_equal(tidy(suppressMessages(qm_run(made, "mean(age in 15..50)", parties = 5)))$name, "mean(age)")
  expect_error(qm_mock("mean(age in 15..50)", rows = 0), "rows is 0.*Give for example rows = 500", class = "quietmean_error")
  expect_error(qm_mock(), "Give ask = QUESTIONS, or study = FILE")
})

test_that("rows are made up that are like the records", {
  skip_if_not(qm_available(), "the command quietmean is not here")
  out <- tempfile("asked-")
  suppressMessages(qm_run(infert, "synthetic-table(age in 15..50, case in yes/no)", parties = 5, epsilon = 20, out = out))
  receipt <- file.path(out, "receipt.json")
  expect_message(made <- qm_synthesize(receipt, rows = 50), "equal a real person")
  expect_equal(dim(made), c(50, 2))
  expect_identical(suppressMessages(qm_synthesize(receipt, rows = 50)), made)
  entry <- file.path(out, "entry.yaml")
  expect_message(qm_registry_entry(receipt, out = entry), "Fill in data_curators, intended_use")
  expect_match(readLines(entry)[[1]], "^url_slug: .quietmean-")
  expect_error(qm_registry_entry(receipt, out = file.path(out, "entry.yml")), "Name it", class = "quietmean_error")
})
