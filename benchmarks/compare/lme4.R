# Rscript lme4.R FORMULA DATA.csv REML|ML: prints components, log-likelihood and the times of lmer.
arguments <- commandArgs(trailingOnly = TRUE)
suppressPackageStartupMessages(library(lme4))
data <- read.csv(arguments[2])
formula <- as.formula(arguments[1])
reml <- arguments[3] == "REML"

fit <- function() suppressMessages(suppressWarnings(lmer(formula, data, REML = reml)))
used <- function(time) c(seconds = time[["elapsed"]], cpu = time[["user.self"]] + time[["sys.self"]])
least <- used(system.time(model <- fit()))
# A short fit is timed again: the first one also loads code.
for (again in seq_len(if (least[["seconds"]] < 2) 3 else 0)) {
  least <- pmin(least, used(system.time(fit())))
}

table <- as.data.frame(VarCorr(model))
components <- setNames(as.list(table$vcov), table$grp)
answer <- list(components = components, llf = as.numeric(logLik(model)),
               seconds = least[["seconds"]], cpu = least[["cpu"]])
cat(jsonlite::toJSON(answer, auto_unbox = TRUE, digits = NA))
