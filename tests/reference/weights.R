# Make the reference values of weights, known variances and offsets: what lme4, lmerTest, emmeans and
# metafor give for published tables, which are stored with them.
#
#     Rscript tests/reference/weights.R [file to write to]
#
# Packages: lme4, lmerTest, emmeans, metafor, metadat, jsonlite. lme4's ends are refined by Newton
# steps on its deviance with Richardson derivatives (numDeriv); metafor's iterations end at 1e-12.

suppressMessages({
  library(jsonlite)
  library(lmerTest)
  library(emmeans)
  library(metafor)
  library(metadat)
  library(numDeriv)
})

script <- sub("^--file=", "", grep("^--file=", commandArgs(FALSE), value = TRUE))
target <- c(commandArgs(TRUE), file.path(dirname(normalizePath(script)), "values", "weights.json"))[1]

plain <- function(x) if (is.factor(x)) as.character(x) else x
as_table <- function(frame) as.list(as.data.frame(lapply(as.data.frame(frame), plain)))
tight <- lmerControl(
  optimizer = "nloptwrap", check.conv.singular = "ignore", check.nobs.vs.nlev = "ignore",
  check.nobs.vs.nRE = "ignore",
  optCtrl = list(algorithm = "NLOPT_LN_BOBYQA", maxeval = 100000, xtol_abs = 1e-12,
                 ftol_abs = 1e-13, xtol_rel = 0, ftol_rel = 0)
)

# The fit at its optimum, to the digits that the deviance has.
refined <- function(formula, data, reml, ...) {
  call <- function(...) do.call(lmerTest::lmer, list(formula, data, REML = reml, ...))
  fit <- call(control = tight, ...)
  deviance <- do.call(
    lme4::lmer, list(formula, data, REML = reml, control = tight, devFunOnly = TRUE, ...)
  )
  theta <- getME(fit, "theta")
  for (step in 1:4) {
    theta <- theta - solve(hessian(deviance, theta), grad(deviance, theta))
  }
  call(start = theta, ...,
    control = lmerControl(optimizer = NULL, check.conv.singular = "ignore",
                          check.nobs.vs.nlev = "ignore", check.nobs.vs.nRE = "ignore"))
}

values_of <- function(fit) {
  components <- as.data.frame(VarCorr(fit))
  table <- coef(summary(fit))
  effects <- ranef(fit)
  list(
    components = list(group = components$grp, one = components$var1, two = components$var2,
                      value = components$vcov),
    llf = as.numeric(logLik(fit)), names = names(fixef(fit)), beta = unname(fixef(fit)),
    se = unname(table[, "Std. Error"]), df = unname(table[, "df"]),
    fitted = unname(fitted(fit)), resid = unname(residuals(fit)),
    effects = lapply(effects, function(e) list(level = rownames(e), value = e[[1]]))
  )
}

cbpp <- lme4::cbpp
cbpp$share <- cbpp$incidence / cbpp$size
penicillin <- lme4::Penicillin
penicillin$w <- 1 + (seq_len(nrow(penicillin)) * 7) %% 5
gone <- c(3, 17, 44, 45, 80, 101, 130)
sleep <- lme4::sleepstudy
sleep$w <- c(1, 2, 0.5, 4)[1 + (seq_len(nrow(sleep)) * 5) %% 4]
sleep$z <- sqrt(sleep$Days) * 7
sleep$half <- ifelse(sleep$Days < 5, "first", "second")
pastes <- lme4::Pastes
pastes$w <- 0.25 + (seq_len(nrow(pastes)) * 11) %% 7

lme4_cases <- list(
  cbpp = list(cbpp, share ~ period + (1 | herd), "share ~ period + (1|herd)", "size"),
  penicillin = list(penicillin[-gone, ], diameter ~ (1 | plate) + (1 | sample),
                    "diameter ~ (1|plate) + (1|sample)", "w"),
  pastes = list(pastes, strength ~ (1 | batch / cask), "strength ~ (1|batch/cask)", "w"),
  sleep = list(sleep, Reaction ~ Days + (1 | Subject), "Reaction ~ Days + (1|Subject)", "w"),
  slopes = list(sleep, Reaction ~ Days + (Days | Subject), "Reaction ~ Days + (Days|Subject)", "w")
)
weighted <- lapply(lme4_cases, function(case) {
  data <- case[[1]]
  data$weight_of_row <- data[[case[[4]]]]
  fits <- lapply(c(reml = TRUE, ml = FALSE), function(reml) {
    values_of(refined(case[[2]], data, reml, weights = quote(weight_of_row)))
  })
  c(list(data = as_table(case[[1]]), formula = case[[3]], weights = case[[4]]), fits)
})

with_offset <- refined(Reaction ~ half + Days + offset(z) + (1 | Subject), sleep, TRUE)
new <- sleep[c(3, 50, 121), ]
new$z <- c(1, -4, 10)
means <- as.data.frame(emmeans(with_offset, "half", lmer.df = "satterthwaite"))
offset <- c(
  list(data = as_table(sleep), formula = "Reaction ~ half + Days + offset(z) + (1|Subject)"),
  values_of(with_offset),
  list(new = as_table(new), predicted = unname(predict(with_offset, new)),
       means = list(half = plain(means$half), value = means$emmean, se = means$SE))
)

bcg <- as.data.frame(escalc(measure = "RR", ai = tpos, bi = tneg, ci = cpos, di = cneg, data = dat.bcg))
control <- list(threshold = 1e-12, maxiter = 10000)
of_uni <- function(fit) {
  u <- ranef(fit)
  list(tau2 = fit$tau2, se_tau2 = fit$se.tau2, beta = as.numeric(fit$beta), se = fit$se,
       llf = as.numeric(logLik(fit)), u = u$pred, u_se = u$se)
}
bcg_fits <- list(
  reml = of_uni(rma(yi, vi, data = bcg, method = "REML", control = control)),
  ml = of_uni(rma(yi, vi, data = bcg, method = "ML", control = control)),
  reml_ablat = of_uni(rma(yi, vi, mods = ~ablat, data = bcg, method = "REML", control = control)),
  ml_ablat = of_uni(rma(yi, vi, mods = ~ablat, data = bcg, method = "ML", control = control))
)
schools <- as.data.frame(dat.konstantopoulos2011)
of_mv <- function(method) {
  fit <- rma.mv(yi, vi, random = ~ 1 | district / school, data = schools, method = method,
                control = list(optimizer = "nlminb", rel.tol = 1e-12))
  list(sigma2 = fit$sigma2, beta = as.numeric(fit$beta), se = fit$se, llf = as.numeric(logLik(fit)))
}
metafor <- list(
  bcg = list(data = as_table(bcg[c("trial", "yi", "vi", "ablat")]), fits = bcg_fits),
  schools = list(data = as_table(schools[c("district", "school", "yi", "vi")]),
                 fits = list(reml = of_mv("REML"), ml = of_mv("ML")))
)

versions <- lapply(c("lme4", "lmerTest", "emmeans", "metafor", "metadat"),
                   function(p) paste(p, as.character(packageVersion(p))))
write_json(
  list(versions = unlist(versions), weighted = weighted, offset = offset, metafor = metafor),
  target, digits = I(15), auto_unbox = TRUE, pretty = FALSE
)
