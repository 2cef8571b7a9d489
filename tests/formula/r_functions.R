# The values of test_r_functions.py: fixed effects, components and log-likelihoods of lmer
# (lme4 1.1-31, R 4.2.2).
library(lme4)
d <- data.frame(
  g = rep(c("a", "b", "c", "d", "e", "f"), each = 5),
  k = rep(c(3, 1, 2, 4, 2), 6),
  x = c(2.1, 3.4, 1.2, 5.6, 4.4, 3.9, 2.8, 6.1, 1.7, 2.2, 4.9, 5.3, 3.1, 2.6, 1.9, 6.4, 4.1, 3.6,
        2.9, 5.8, 1.4, 2.5, 4.7, 3.3, 5.1, 2.3, 6.2, 1.1, 4.2, 3.7),
  y = c(3.2, 4.1, 2.7, 6.9, 5.2, 5.5, 3.9, 8.8, 3.1, 3.3, 5.1, 5.9, 3.4, 2.9, 2.6, 9.2, 6.0, 5.3,
        4.6, 8.1, 2.2, 2.9, 4.4, 3.7, 5.4, 3.6, 8.4, 2.3, 5.7, 5.0))
control <- lmerControl(
  optCtrl = list(xtol_rel = 1e-14, ftol_rel = 1e-15, ftol_abs = 1e-15, xtol_abs = 1e-14,
                 maxeval = 1e5))
formulas <- list(
  log(y) ~ log(x) + (1|g),
  log(y, 2) ~ log(x, base = 10) + (1|g),
  sqrt(y) ~ exp(x/5) + (1|g),
  log10(y) ~ log1p(x) + (1|g),
  y ~ factor(k) + (1|g),
  y ~ as.factor(k) + (1|g),
  y ~ poly(x, 2) + (1|g),
  y ~ poly(x, degree = 3) + (1|g),
  y ~ poly(x, 2, raw = TRUE) + (1|g),
  y ~ x + I(x^2) + (1|g),
  I(y^2) ~ x + (1|g),
  y ~ (x + factor(k))^2 + (1|g),
  y ~ scale(x) + (1|g),
  y ~ scale(x, scale = FALSE) + (1|g),
  y ~ scale(x, center = FALSE) + (1|g),
  y ~ scale(log(x)) * factor(k) + (1|g),
  scale(y) ~ x + (1|g))
for (f in formulas) {
  m <- lmer(f, d, control = control)
  cat(deparse(f), sprintf("%.10g", c(fixef(m), as.data.frame(VarCorr(m))$vcov, logLik(m))), "\n")
}
