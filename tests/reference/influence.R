# Make the reference values of the influence of levels: estimates of lme4 without each level of a
# facet, and Cook's distances.
#
#     Rscript tests/reference/influence.R
#
# Packages: lme4, jsonlite; nlme for its tables. Each data set is fitted by lmer with tolerances near
# rounding; derivative-free ends are within 1e-6 of the maximum. `lme4` is the distance of lme4's
# own cooks.distance(influence(fit, facet)), which is Cook's times (J - p)/J for J levels.

suppressMessages({
  library(jsonlite)
  library(lme4)
})

script <- sub("^--file=", "", grep("^--file=", commandArgs(FALSE), value = TRUE))
target <- file.path(dirname(normalizePath(script)), "values", "influence.json")

cases <- list(
  sleepstudy = list("lme4", "sleepstudy", "Reaction ~ Days + (Days|Subject)", "Subject", TRUE),
  sleepstudy_ml = list("lme4", "sleepstudy", "Reaction ~ Days + (1|Subject)", "Subject", FALSE),
  penicillin = list("lme4", "Penicillin", "diameter ~ 1 + (1|plate) + (1|sample)", "sample", TRUE),
  orthodont = list("nlme", "Orthodont", "distance ~ Sex*age + (1|Subject)", "Subject", TRUE),
  cake = list("lme4", "cake", "angle ~ recipe + temp + (1|replicate/recipe)", "replicate", TRUE)
)

control <- lmerControl(
  optimizer = "nloptwrap",
  optCtrl = list(
    algorithm = "NLOPT_LN_BOBYQA", maxeval = 20000,
    xtol_abs = 1e-12, ftol_abs = 1e-13, xtol_rel = 0, ftol_rel = 0
  ),
  check.conv.singular = "ignore", check.conv.grad = "ignore", check.conv.hess = "ignore"
)

fitted_to <- function(formula, frame, reml) {
  fit <- lmer(formula, frame, REML = reml, control = control)
  for (again in 1:2) {
    fit <- lmer(formula, frame, REML = reml, control = control, start = getME(fit, "theta"))
  }
  fit
}

estimates <- function(fit) {
  found <- as.data.frame(VarCorr(fit))
  list(
    loglike = as.numeric(logLik(fit)),
    groups = found$grp,
    first = ifelse(is.na(found$var1), "", found$var1),
    second = ifelse(is.na(found$var2), "", found$var2),
    components = found$vcov,
    beta = unname(fixef(fit))
  )
}

made <- lapply(cases, function(case) {
  frame <- as.data.frame(get(data(list = case[[2]], package = case[[1]], envir = environment())))
  for (column in names(frame)) {  # unordered, levels by alphabet as in Python
    if (is.factor(frame[[column]])) {
      frame[[column]] <- factor(as.character(frame[[column]]))
    }
  }
  if (case[[2]] == "cake") frame$temp <- as.numeric(as.character(frame$temperature))
  formula <- as.formula(case[[3]])
  facet <- case[[4]]
  whole <- fitted_to(formula, frame, case[[5]])
  J <- nlevels(frame[[facet]])
  p <- length(fixef(whole))
  levels <- lapply(levels(frame[[facet]]), function(level) {
    rest <- droplevels(frame[frame[[facet]] != level, ])
    fit <- fitted_to(formula, rest, case[[5]])
    change <- fixef(fit) - fixef(whole)
    cook <- sum(change * solve(as.matrix(vcov(whole)), change)) / p
    c(list(level = level, n = nrow(frame) - nrow(rest), cook = cook), estimates(fit))
  })
  assign("frame", frame, envir = globalenv())
  assign("formula", formula, envir = globalenv())
  assign("reml", case[[5]], envir = globalenv())
  plain <- lmer(formula, frame, REML = reml, control = control)
  own <- cooks.distance(influence(plain, facet, data = frame))
  names(own) <- as.character(unique(frame[[facet]]))
  list(
    package = case[[1]], table = case[[2]], formula = case[[3]], facet = facet,
    method = if (case[[5]]) "reml" else "ml", whole = estimates(whole), levels = levels,
    lme4 = as.list(own), J = J, p = p
  )
})
write(toJSON(made, auto_unbox = TRUE, digits = 15, pretty = 1), target)
