# Rscript lme4_profile.R FORMULA TABLE.csv LEVEL: intervals of the components by lme4's profile.
#
# The table has a column for every facet, and y1, y2, … with the scores of one data set each. The
# first is fitted by lmer(REML = TRUE), the others by refit(). Prints a line for every data set and
# component, on the scale of variances; nothing of a data set whose profile fails.
arguments <- commandArgs(trailingOnly = TRUE)
suppressPackageStartupMessages(library(lme4))
formula <- as.formula(arguments[1])
table <- read.csv(arguments[2])
level <- as.numeric(arguments[3])
responses <- grep("^y[0-9]+$", names(table), value = TRUE)

table$y <- table[[responses[1]]]
quietly <- function(expression) suppressMessages(suppressWarnings(expression))
model <- quietly(lmer(formula, table, REML = TRUE))

intervals <- function(response) {
  fit <- refit(model, table[[response]])
  confint(fit, parm = "theta_", level = level, method = "profile", quiet = TRUE, oldNames = FALSE)
}

cat("response,component,low,high\n")
for (response in responses) {
  found <- quietly(tryCatch(intervals(response), error = function(e) NULL))
  for (term in rownames(found)) {
    component <- sub("sigma", "Residual", sub("^.*\\|", "", term))
    cat(response, component, format(found[term, ]^2, digits = 12, trim = TRUE), sep = ",")
    cat("\n")
  }
}
