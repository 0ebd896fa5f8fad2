test_that("options become words of the command", {
  expect_equal(option_words(list(dropouts = 0.1, accept_wide = TRUE, no_ledger = FALSE, out = NULL)),
               c("--dropouts", "0.1", "--accept-wide"))
  expect_equal(option_words(list(population = "these records")), c("--population", "these records"))
  expect_error(option_words(list(0.1)), "needs a name")
})

test_that("numbers are written so that they read as the same number", {
  set.seed(20261126)
  numbers <- c(0.1, 1 / 3, 1e-300, 123456789012345678, -0.1 + 0.3, runif(200) * 10^sample(-20:20, 200, replace = TRUE))
  expect_identical(as.double(exact(numbers)), numbers)
  expect_equal(exact(c(1L, 100000L)), c("1", "100000"))
})

test_that("a sentence names arguments, and keeps a line for the shell", {
  expect_equal(in_words_of_r("give --party-column NAME: quietmean run --help lists more"),
               "give party_column NAME: quietmean run --help lists more")
  line <- "quietmean verify receipt /tmp/a.b/receipt.json --report PAGE.html --details"
  for (end in c("", ". Give --seed 1", ", or give --seed 1")) {
    expect_equal(in_words_of_r(paste0("no page was written: ", line, end)),
                 paste0("no page was written: ", line, sub("--", "", end, fixed = TRUE)))
  }
  expect_equal(in_words_of_r("a cell of data-frame.csv is -1"), "a cell of the data frame is -1")
})

test_that("what was realised is said where nothing was guaranteed", {
  result <- function(guaranteed, realised, whole) {
    new_result(list(epsilon_a_priori = guaranteed, epsilon = realised, delta = 1e-6,
                    certificate = list(unit = "record", adversary = "any 2", whole_party_epsilon = whole)))
  }
  expect_equal(privacy_lines(result(1.001, 0.9, 3)), "Privacy   epsilon 1.01 (delta 1e-6) per record, guaranteed, against any 2")
  expect_match(privacy_lines(result("inf", 1.321, 3)), "epsilon 1.33 realised .*; nothing was guaranteed")
  expect_match(privacy_lines(result(NULL, "inf", 3)), "no bound, neither guaranteed nor realised")
  expect_match(privacy_lines(result(1, 1, "inf"))[[2]], "! SITE +Each record is protected\\. A site as a whole is not")
})

test_that("what is read is one file with a result", {
  folder <- tempfile()
  dir.create(folder)
  on.exit(unlink(folder, recursive = TRUE))
  place <- file.path(folder, "some.json")
  expect_error(qm_read(place), "There is no file")
  for (wrong in list(c("a", "b"), 1, NULL, NA, list("a"))) expect_error(qm_read(wrong), "path of one file")
  for (content in c("age\n1", "{}", "[1, 2]", "", "7", "{\"result\": null}", "{\"result\": 3}")) {
    writeLines(content, place)
    expect_error(qm_read(place), "holds no result of a study")
  }
  expect_error(qm_read(folder), "There is no file")
})

test_that("a data frame is written to the last digit, and removed", {
  data <- data.frame(x = c(1 / 3, NA, 1e5), b = c(TRUE, FALSE, NA), f = factor(c("a \"b\"", "c,d", NA)),
                     d = as.Date(c("2020-01-31", NA, "1999-12-01")), check.names = FALSE)
  kept <- NULL
  expect_warning(back <- with_data(data, function(file) {
    kept <<- file
    expect_equal(as.character(file.mode(file)), "600")
    utils::read.csv(file, colClasses = "character")
  }), NA)
  expect_false(file.exists(kept))
  expect_identical(as.double(back$x), data$x)
  expect_equal(back$b, c("true", "false", ""))
  expect_equal(back$f, c("a \"b\"", "c,d", ""))
  expect_equal(back$d, c("2020-01-31", "", "1999-12-01"))
  expect_error(with_data(data.frame(x = I(list(1, 2))), identity), "Column x")
  expect_error(with_data(1:3, identity), "another kind")
})

test_that("a data frame needs the name of its account", {
  expect_error(qm_join("s.sealed", data.frame(x = 1)), "does not say which data set")
  expect_error(qm_send("s.sealed", data.frame(x = 1)), "does not say which data set")
})
