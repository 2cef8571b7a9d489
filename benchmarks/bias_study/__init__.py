"""How biased estimates of the accuracy of test collections are: the study of Urbano (2016)."""
