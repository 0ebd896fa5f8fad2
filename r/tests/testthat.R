library(testthat)
library(quietmean)

test_check("quietmean")
