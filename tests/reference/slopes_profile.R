# Make the reference values of profile intervals with random slopes: lme4's, of standard deviations
# and correlations by maximum likelihood. lme4 interpolates between the points of its profiles, so
# that its ends have three to five digits.
#
#     Rscript tests/reference/slopes_profile.R
#
# Packages: lme4, jsonlite.

suppressMessages({
  library(jsonlite)
  library(lme4)
})

script <- sub("^--file=", "", grep("^--file=", commandArgs(FALSE), value = TRUE))
target <- file.path(dirname(normalizePath(script)), "values", "slopes_profile.json")
labels <- c("sd_intercept", "correlation", "sd_slope", "residual")

ends <- function(package, table, formula) {
  frame <- as.data.frame(get(data(list = table, package = package, envir = environment())))
  control <- lmerControl(optCtrl = list(xtol_abs = 1e-10, ftol_abs = 1e-12))
  fit <- lmer(as.formula(formula), frame, REML = FALSE, control = control)
  found <- suppressMessages(confint(fit, parm = "theta_", quiet = TRUE))
  list(
    package = package, table = table, formula = formula,
    ends = setNames(lapply(1:4, function(i) as.list(unname(found[i, ]))), labels)
  )
}

stored <- list(
  sleepstudy = ends("lme4", "sleepstudy", "Reaction ~ Days + (Days|Subject)")
)
write(toJSON(stored, auto_unbox = TRUE, digits = I(15), pretty = TRUE), target)
print(lapply(stored, function(s) unlist(s$ends)))
