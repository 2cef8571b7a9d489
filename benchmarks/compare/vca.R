# Rscript vca.R FORMULA DATA.csv: prints Type I components, negative ones too, and the time.
arguments <- commandArgs(trailingOnly = TRUE)
suppressPackageStartupMessages(library(VCA))
data <- read.csv(arguments[2])
formula <- as.formula(arguments[1])
for (facet in all.vars(formula)[-1]) data[[facet]] <- factor(data[[facet]])

seconds <- system.time(model <- anovaVCA(formula, data, NegVC = TRUE))[["elapsed"]]

table <- model$aov.tab
table <- table[rownames(table) != "total", ]
names <- sub("^error$", "Residual", rownames(table))
answer <- list(components = setNames(as.list(table[, "VC"]), names), seconds = seconds)
cat(jsonlite::toJSON(answer, auto_unbox = TRUE, digits = NA))
