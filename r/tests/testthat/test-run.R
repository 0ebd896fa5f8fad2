age_of <- list(age = qm_bounds(15, 50), case = qm_boolean(), education = qm_levels("0-5yrs", "6-11yrs", "12+ yrs"))
women <- transform(infert, case = case == 1)

test_that("a study is run, and its numbers are tidy", {
  skip_if_not(qm_available(), "the command quietmean is not here")
  result <- suppressMessages(qm_run(women, age_of, c("mean(age)", "group-means(age, by=education)"), parties = 5, epsilon = 4))
  terms <- tidy(result)
  expect_equal(terms$name[[1]], "mean(age)")
  expect_true(all(c("0-5yrs", "6-11yrs", "12+ yrs") %in% terms$term))
  # Where noise hides a term it has no interval.
  expect_true(all(terms$conf.low < terms$conf.high, na.rm = TRUE))
  promise <- glance(result)
  expect_equal(promise$unit, "record")
  expect_lte(promise$epsilon.a.priori, 4)
  expect_identical(tidy(qm_read(result$receipt)), terms)
  expect_identical(glance(qm_read(result$receipt)), promise)
  expect_output(print(result), "Differentially private")
  skip_if_not_installed("ggplot2")
  expect_s3_class(ggplot2::autoplot(result), "ggplot")
})

test_that("a mistake is an R error with the sentence", {
  skip_if_not(qm_available(), "the command quietmean is not here")
  expect_error(qm_run(women, list(agee = qm_bounds(15, 50)), parties = 5), "'agee' is not among", class = "quietmean_error")
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
  study <- tempfile(fileext = ".toml")
  writeLines(c("name = \"ages\"", "epsilon = 4.0", "delta = 1e-6", "[[column]]", "name = \"age\"", "low = 15", "high = 50",
               "[[statistic]]", "kind = \"mean\"", "column = \"age\""), study)
  table <- suppressMessages(qm_plan(parties = 5, study = study, records = 2000))
  expect_equal(table$name, "mean(age)")
  expect_true(table$noise.width.low > 0 && table$width.high >= table$noise.width.low)
})
