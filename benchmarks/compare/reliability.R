# Rscript reliability.R tau|split_half|simulation GIVEN.json: prints what was found, and the times.
#
# The algorithms of Urbano (2016) in plain R, in the manner of the code published with the paper
# (github.com/julian-urbano/irj2015-reliability): loops over pairs of systems, a function for each
# pair of halves, a root for each simulated number.

# Accuracy that is expected of a test --------------------------------------------------------

expected_tau <- function(scores, sizes) {
  scores <- scores[, order(colMeans(scores), decreasing = TRUE)]
  n <- ncol(scores)
  swaps <- variance <- numeric(length(sizes))
  for (i in seq_len(n - 1)) {
    for (j in (i + 1):n) {
      difference <- scores[, i] - scores[, j]
      w <- pnorm(-mean(difference) / sqrt(var(difference) / sizes))
      swaps <- swaps + w
      variance <- variance + w * (1 - w)
    }
  }
  pairs <- n * (n - 1) / 2
  list(estimate = 1 - 2 * swaps / pairs, variance = 4 * variance / pairs^2)
}

# Accuracy of halves -------------------------------------------------------------------------

tau <- function(half, other) cor(colMeans(half), colMeans(other), method = "kendall")

tau_ap <- function(half, other) {
  found <- order(colMeans(half), decreasing = TRUE)
  true <- order(colMeans(other), decreasing = TRUE)
  shares <- 0
  for (rank in 2:length(true)) {
    above <- found[seq_len(which(found == true[rank]) - 1)]
    shares <- shares + sum(above %in% true[seq_len(rank - 1)]) / (rank - 1)
  }
  2 * shares / (length(true) - 1) - 1
}

sens_abs <- function(half, other) {
  means <- colMeans(half)
  true_means <- colMeans(other)
  n <- length(means)
  difference <- true_difference <- numeric(n * (n - 1) / 2)
  pair <- 0
  for (i in seq_len(n - 1)) {
    for (j in (i + 1):n) {
      pair <- pair + 1
      difference[pair] <- means[i] - means[j]
      true_difference[pair] <- true_means[i] - true_means[j]
    }
  }
  smallest_safe(difference, true_difference)
}

sens_rel <- function(half, other) {
  means <- colMeans(half)
  true_means <- colMeans(other)
  n <- length(means)
  difference <- true_difference <- numeric(n * (n - 1) / 2)
  pair <- 0
  for (i in seq_len(n - 1)) {
    for (j in (i + 1):n) {
      pair <- pair + 1
      difference[pair] <- (means[i] - means[j]) / max(means[i], means[j])
      true_difference[pair] <- true_means[i] - true_means[j]
    }
  }
  smallest_safe(difference, true_difference)
}

smallest_safe <- function(difference, true_difference) {
  largest_first <- order(abs(difference), decreasing = TRUE)
  agrees <- (sign(difference) * sign(true_difference))[largest_first]
  wrong <- cumsum(agrees == -1)
  safe <- which(wrong / (wrong + cumsum(agrees == 1)) <= 0.05)
  if (length(safe) == 0) NA else min(1, abs(difference)[largest_first[max(safe)]])
}

MEASURES <- list(tau = tau, tau_ap = tau_ap, sens_abs = sens_abs, sens_rel = sens_rel)
is_correlation <- function(name) name %in% c("tau", "tau_ap")

# Each curve from the same halves, or (as published, where it draws its own) from all of them anew.
split_half <- function(scores, halves, others, measures, sizes, anew) {
  n <- rep(sapply(halves, ncol), sapply(halves, nrow))
  observe <- function(name) {
    unlist(lapply(seq_along(halves), function(k) {
      sapply(seq_len(nrow(halves[[k]])), function(trial) {
        MEASURES[[name]](scores[halves[[k]][trial, ], ], scores[others[[k]][trial, ], ])
      })
    }))
  }
  accuracies <- predicted <- list()
  for (name in measures) {
    for (curve in names(CURVES)) {
      if (anew || is.null(accuracies[[name]])) accuracies[[name]] <- observe(name)
      accuracy <- accuracies[[name]]
      error <- if (is_correlation(name)) (1 - accuracy) / 2 else accuracy
      e <- predicted_error(CURVES[[curve]], n, error, sizes)
      predicted[[name]][[curve]] <- if (is_correlation(name)) 1 - 2 * e else e
    }
  }
  list(accuracies = accuracies, predicted = predicted)
}

# Errors of larger tests.
predicted_error <- function(curve, n, error, sizes) {
  seen <- data.frame(n = n, log_n = log(n), error = error)[!is.na(error), ]
  curve(seen, data.frame(n = sizes, log_n = log(sizes)))
}

inside <- function(e) pmin(1, pmax(0, e))
CURVES <- list(
  exp1 = function(seen, asked) {
    inside(exp(predict(lm(log(error) ~ log_n, seen[seen$error > 0, ]), asked)))
  },
  exp2 = function(seen, asked) {
    inside(exp(predict(lm(log(error) ~ n, seen[seen$error > 0, ]), asked)))
  },
  logit = function(seen, asked) {
    line <- suppressWarnings(glm(error ~ log_n, binomial(), seen))
    predict(line, asked, type = "response")
  }
)

# Simulated collections: kernel margins, all assumptions but random topics dropped -------------

A <- 0.05
to_logit <- function(x) log((x + A) / (1 - x + A))
from_logit <- function(y) pmin(pmax((1 + 2 * A) / (1 + exp(-y)) - A, 0), 1)

margin <- function(x) {
  low <- min(x, to_logit(0))
  high <- max(x, to_logit(1))
  kernel <- ks::kcde(x, xmin = low, xmax = high)
  cdf <- approxfun(kernel$eval.points, kernel$estimate, yleft = 0, yright = 1)
  # The root finder stops with an error where there is no root, as may be beyond five decimals.
  one <- function(p) {
    p <- round(p, 5)
    if (p <= 0) low else if (p >= 1) high else uniroot(function(t) cdf(t) - p, c(low, high))$root
  }
  function(p) sapply(p, one)
}

configure <- function(scores) {
  x <- to_logit(scores)
  systems <- colMeans(x)
  topics <- rowMeans(x) - mean(x)
  residuals <- x - outer(topics, systems, "+")
  columns <- cbind(residuals, topics)
  Sigma <- as.matrix(Matrix::nearPD(cov(columns))$mat)
  list(systems = systems, Sigma = Sigma, C = chol(Sigma), margins = apply(columns, 2, margin))
}

draw_normals <- function(simulator, n_topics) {
  k <- ncol(simulator$C)
  matrix(rnorm(n_topics * k), ncol = k) %*% simulator$C
}

simulate <- function(simulator, normals) {
  effects <- normals
  for (k in seq_len(ncol(normals))) {
    p <- pnorm(normals[, k], sd = sqrt(simulator$Sigma[k, k]))
    effects[, k] <- simulator$margins[[k]](p)
  }
  topics <- ncol(effects)
  from_logit(outer(effects[, topics], simulator$systems, "+") + effects[, -topics])
}

# ----------------------------------------------------------------------------------------------

# Processor seconds of a call, the best of several as on the other side; a long one is timed once.
# The clock's thousandths are shared by as many short calls as take a tenth of a second.
seconds_of <- function(call, calls = 1) {
  sum(system.time(for (k in seq_len(calls)) call())[c("user.self", "sys.self")]) / calls
}

best_of <- function(call) {
  first <- seconds_of(call)
  if (first > 2) return(first)
  min(replicate(given$repeats, seconds_of(call, ceiling(0.1 / max(first, 0.001)))))
}

arguments <- commandArgs(trailingOnly = TRUE)
given <- jsonlite::fromJSON(arguments[2])
scores <- given$scores

answer <- switch(arguments[1],
  tau = {
    work <- function() expected_tau(scores, given$sizes)
    c(work(), seconds = best_of(work))
  },
  split_half = {
    work <- function() {
      split_half(scores, given$halves, given$others, given$measures, given$sizes, given$anew)
    }
    c(work(), seconds = best_of(work))
  },
  simulation = {
    suppressPackageStartupMessages(library(ks))
    set.seed(1)
    simulator <- configure(scores)
    normals <- draw_normals(simulator, given$n_topics)
    sds <- sqrt(diag(simulator$Sigma))
    list(
      normals = sweep(normals, 2, sds, "/"),
      correlations = cov2cor(simulator$Sigma),
      scores = simulate(simulator, normals),
      seconds = best_of(function() simulate(simulator, draw_normals(simulator, given$n_topics))),
      configure_seconds = best_of(function() configure(scores))
    )
  }
)
cat(jsonlite::toJSON(answer, auto_unbox = TRUE, digits = NA, na = "null"))
