# Make what lmerTest and emmeans print of whole terms and of marginal means, with the data:
#
#     Rscript tests/reference/make_fixed_tables.R [file to write to]
#
# Packages: lme4, lmerTest, pbkrtest, emmeans, nlme, jsonlite. The tables are those of lme4 (cake) and
# nlme (Machines, ergoStool), with rows deleted.

suppressMessages({
  library(jsonlite)
  library(lmerTest)
  library(emmeans)
})

script <- sub("^--file=", "", grep("^--file=", commandArgs(FALSE), value = TRUE))
here <- dirname(normalizePath(script))
to <- c(commandArgs(TRUE), file.path(here, "values", "fixed_tables.json"))[1]

plain <- function(x) factor(as.character(x))
cake <- transform(
  as.data.frame(lme4::cake),
  replicate = plain(replicate), recipe = plain(recipe), temperature = plain(temperature)
)
cake$x <- (as.integer(as.character(cake$replicate)) * 37) %% 11 + cake$temp / 50
machines <- transform(as.data.frame(nlme::Machines), Worker = plain(Worker), Machine = plain(Machine))
stools <- transform(as.data.frame(nlme::ergoStool), Type = plain(Type), Subject = plain(Subject))
replicate_of <- as.integer(as.character(cake$replicate))
some <- (replicate_of * 7 + cake$temp / 5 + as.integer(cake$recipe) * 3) %% 4 != 0
unbalanced <- droplevels(cake[some, ])
absent <- with(cake, (recipe == "A" & temperature == "175") | (recipe == "B" & temperature == "215"))
deficient <- droplevels(cake[some & !absent, ])
gone <- c(2, 3, 6, 8, 9, 12, 19, 20, 27, 33, 34, 35, 36)

cases <- list(
  cake = list(cake, angle ~ recipe * temperature + (1 | recipe:replicate)),
  machines = list(machines, score ~ Machine + (1 | Worker) + (1 | Worker:Machine)),
  machines_unbalanced = list(machines[-gone, ], score ~ Machine + (1 | Worker)),
  stools = list(stools, effort ~ Type + (1 | Subject)),
  unbalanced = list(unbalanced, angle ~ recipe * temperature + recipe * x + (1 | replicate)),
  deficient = list(deficient, angle ~ x + recipe * temperature + (1 | replicate)),
  additive = list(deficient, angle ~ recipe + temperature + log(x + 1) + I(x^2) + (1 | replicate)),
  numbers = list(unbalanced, angle ~ recipe * temp + (1 | replicate))
)

means <- list(
  cake = list(list("recipe"), list("recipe", by = "temperature"), list(c("recipe", "temperature"))),
  machines = list(list("Machine")),
  machines_unbalanced = list(list("Machine")),
  stools = list(list("Type")),
  unbalanced = list(
    list("recipe"), list("temperature", by = "recipe"), list("recipe", at = list(x = 4.5)),
    list("recipe", at = list(temperature = "195")),
    list(c("recipe", "temperature"), at = list(x = 4.5, temperature = c("185", "195")))
  ),
  deficient = list(list("recipe"), list("temperature"), list("temperature", by = "recipe")),
  additive = list(list("recipe"), list("temperature", at = list(x = 3))),
  numbers = list(list("recipe"), list("recipe", at = list(temp = 180)))
)

tight <- lmerControl(
  optimizer = "nloptwrap",
  optCtrl = list(
    algorithm = "NLOPT_LN_BOBYQA", maxeval = 100000,
    xtol_abs = 1e-12, ftol_abs = 1e-13, xtol_rel = 0, ftol_rel = 0
  ),
  check.conv.singular = "ignore"
)

table_of <- function(frame) {
  as.list(setNames(as.data.frame(frame), c("sum_sq", "mean_sq", "df_num", "df_denom", "F", "p")))
}

anovas <- function(fit) {
  found <- list()
  for (type in 1:3) {
    for (ddf in c("Satterthwaite", "Kenward-Roger")) {
      table <- suppressMessages(anova(fit, type = type, ddf = ddf))
      found[[paste(type, tolower(ddf))]] <- c(list(term = rownames(table)), table_of(table))
    }
  }
  found
}

marginal <- function(fit, data, how) {
  emm_options(lmer.df = how$ddf)
  specs <- how$call[[1]]
  grid <- suppressMessages(emmeans(
    fit, specs = specs, by = how$call$by, at = how$call$at, data = data, cov.keep = character(0)
  ))
  table <- as.data.frame(confint(grid))
  rows <- as.data.frame(pairs(grid, adjust = how$adjust, infer = c(TRUE, TRUE)))
  levels <- function(frame, names) lapply(frame[names], as.character)
  column <- function(frame, pattern) {
    name <- grep(pattern, names(frame), value = TRUE)
    if (length(name)) frame[[name[1]]] else rep(NA, nrow(frame))
  }
  list(
    facets = specs, by = how$call$by, at = how$call$at, ddf = how$ddf, adjust = how$adjust,
    levels = levels(table, c(specs, how$call$by)),
    mean = table$emmean, std_error = table$SE, df = table$df,
    low = column(table, "LCL|lower"), high = column(table, "UCL|upper"),
    pairs = c(
      list(contrast = as.character(rows$contrast)),
      if (!is.null(how$call$by)) list(by = as.character(rows[[how$call$by]])),
      list(
        difference = rows$estimate, std_error = rows$SE, df = rows$df,
        low = column(rows, "LCL|lower"), high = column(rows, "UCL|upper"),
        statistic = column(rows, "ratio"), p = rows$p.value
      )
    )
  )
}

values <- lapply(names(cases), function(name) {
  data <- cases[[name]][[1]]
  formula <- cases[[name]][[2]]
  fit <- suppressMessages(lmer(formula, data, control = tight))
  used <- data[all.vars(formula)]
  columns <- lapply(used, function(x) if (is.factor(x)) as.character(x) else x)
  calls <- list()
  for (call in means[[name]]) {
    for (how in list(c("satterthwaite", "none"), c("satterthwaite", "tukey"), c("kenward-roger", "none"))) {
      how <- list(call = call, ddf = how[1], adjust = how[2])
      calls[[length(calls) + 1]] <- marginal(fit, data, how)
    }
  }
  text <- gsub("I\\(x\\^2\\)", "I(x**2)", paste(deparse(formula, 500), collapse = " "))
  shown <- as.data.frame(VarCorr(fit))
  fixed <- var(as.vector(model.matrix(fit) %*% fixef(fit)))
  total <- fixed + sum(shown$vcov)
  list(
    formula = text, data = columns, anova = anovas(fit), means = calls,
    variances = as.list(setNames(shown$vcov, shown$grp)),
    r2 = list(
      marginal = fixed / total,
      conditional = 1 - shown$vcov[shown$grp == "Residual"] / total
    )
  )
})
names(values) <- names(cases)
write(toJSON(values, auto_unbox = TRUE, digits = I(12), na = "null", null = "null"), to)
