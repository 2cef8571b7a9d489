"""Studies that fit many times: measures side by side, subsamples of a G-study."""
