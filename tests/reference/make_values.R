# Make what R's programs print of the stored reference values again, and compare:
#
#     Rscript tests/reference/make_values.R [folder to write to]
#
# Packages: lme4, lmerTest, pbkrtest, nlme, jsonlite; VCA for the files vca_*. The tables are those
# that the packages of R have, with rows deleted.

suppressMessages({
  library(jsonlite)
  library(lme4)
})

script <- sub("^--file=", "", grep("^--file=", commandArgs(FALSE), value = TRUE))
here <- dirname(normalizePath(script))
values <- file.path(here, "values")
to <- commandArgs(TRUE)
tables <- fromJSON(file.path(values, "tables.json"))

table_of <- function(name) {
  known <- tables[[name]]
  if (!is.null(known$parent)) {
    return(droplevels(table_of(known$parent)[-known$deleted_rows, ]))
  }
  package <- if (name == "Orthodont") "nlme" else "lme4"
  frame <- get(data(list = name, package = package, envir = environment()))
  if (name == "Orthodont") {
    frame <- as.data.frame(frame)
    frame$Subject <- factor(frame$Subject, ordered = FALSE)
  }
  frame
}

# lme4 and lmerTest -------------------------------------------------------------------------------

components <- function(fit) {
  rows <- as.data.frame(VarCorr(fit))
  setNames(rows$vcov, rows$grp)
}

tight <- lmerControl(
  optimizer = "nloptwrap",
  optCtrl = list(
    algorithm = "NLOPT_LN_BOBYQA", maxeval = 100000,
    xtol_abs = 1e-12, ftol_abs = 1e-13, xtol_rel = 0, ftol_rel = 0
  ),
  check.conv.singular = "ignore"
)

fitted_by_lmer <- function(formula, data, reml) {
  fit <- lmer(formula, data, REML = reml, control = tight)
  list(
    vc = as.list(components(fit)),
    fixef = as.list(fixef(fit)),
    se_fixef = as.list(setNames(sqrt(diag(as.matrix(vcov(fit)))), names(fixef(fit)))),
    logLik = as.numeric(logLik(fit)),
    df = attr(logLik(fit), "df"),
    AIC = AIC(fit),
    BIC = BIC(fit)
  )
}

by_lmerTest <- function(formula, data) {
  fit <- lmerTest::lmer(formula, data, control = tight)
  found <- list()
  for (ddf in c("Satterthwaite", "Kenward-Roger")) {
    key <- gsub("-", "_", tolower(ddf))
    rows <- coef(summary(fit, ddf = ddf))
    colnames(rows) <- c("estimate", "se", "df", "t", "p")
    found[[key]] <- apply(rows, 1, as.list)
    type3 <- as.data.frame(anova(fit, type = 3, ddf = ddf))
    colnames(type3) <- c("sumsq", "meansq", "numdf", "dendf", "F", "p")
    found[[paste0("anova_type3_", key)]] <- apply(type3, 1, as.list)
  }
  type1 <- as.data.frame(anova(fit, type = 1, ddf = "Satterthwaite"))
  colnames(type1) <- c("sumsq", "meansq", "numdf", "dendf", "F", "p")
  found$anova_type1_satterthwaite <- apply(type1, 1, as.list)
  found
}

of_lme4 <- function(stored) {
  data <- table_of(stored$dataset)
  for (name in names(stored$contrasts)) {
    data[[name]] <- factor(data[[name]])
  }
  formula <- as.formula(stored$formula)
  found <- list(lme4 = list(
    REML = fitted_by_lmer(formula, data, TRUE),
    ML = fitted_by_lmer(formula, data, FALSE)
  ))
  if (!is.null(stored$values$lmerTest)) {
    found$lmerTest <- by_lmerTest(formula, data)
  }
  found
}

# VCA ---------------------------------------------------------------------------------------------

of_vca <- function(stored) {
  data <- as.data.frame(table_of(stored$dataset))
  formula <- as.formula(stored$vca_formula)
  mixed <- grepl("(", stored$vca_formula, fixed = TRUE)
  fit <- if (mixed) {
    VCA::anovaMM(formula, data, NegVC = TRUE)
  } else {
    VCA::anovaVCA(formula, data, NegVC = TRUE)
  }
  rows <- as.data.frame(fit$aov.tab)
  colnames(rows) <- c("DF", "SS", "MS", "VC", "percent_total", "SD", "CV_percent")[seq_along(rows)]
  covariance <- VCA::vcovVC(fit, method = "scm")
  list(
    anova_negvc = apply(rows, 1, as.list),
    mean = fit$Mean,
    nobs = fit$Nobs,
    vcov_vc_scm = list(names = rownames(covariance), matrix = unname(unclass(covariance)))
  )
  found
}

# Comparison --------------------------------------------------------------------------------------

# The largest difference of what both have, relative to the largest number of the block.
distance <- function(new, old) {
  if (is.list(new) && length(names(new)) > 0 && any(vapply(new, is.list, TRUE))) {
    both <- intersect(names(new), names(old))
    found <- vapply(both, function(name) distance(new[[name]], old[[name]]), 0)
    return(if (length(found)) max(found) else 0)
  }
  if (is.list(new) && length(names(new)) > 0) {
    both <- intersect(names(new), names(old))
    new <- unlist(new[both])
    old <- unlist(old[both])
  }
  new <- suppressWarnings(as.numeric(unlist(new)))
  old <- suppressWarnings(as.numeric(unlist(old)))
  if (length(new) != length(old) || !length(new) || all(is.na(new))) {
    return(0)
  }
  max(abs(new - old), na.rm = TRUE) / max(abs(old), na.rm = TRUE)
}

compare <- function(path, make) {
  name <- sub("\\.json$", "", basename(path))
  stored <- fromJSON(path, simplifyDataFrame = FALSE)
  if (!length(stored$values)) {
    return(invisible())
  }
  made <- make(stored)
  for (block in names(made)) {
    if (!is.null(stored$values[[block]])) {
      cat(sprintf("%-40s %8.1e  %s\n", name, distance(made[[block]], stored$values[[block]]), block))
    }
  }
  if (length(to)) {
    dir.create(to[1], showWarnings = FALSE, recursive = TRUE)
    write_json(made, file.path(to[1], basename(path)), digits = NA, auto_unbox = TRUE, pretty = 1)
  }
}

for (path in list.files(values, "^lme4_", full.names = TRUE)) {
  compare(path, of_lme4)
}
if (requireNamespace("VCA", quietly = TRUE)) {
  for (path in list.files(values, "^vca_", full.names = TRUE)) {
    compare(path, of_vca)
  }
} else {
  cat("the files vca_*: R's package VCA is not installed\n")
}
