"""One module per subject, by family, each with `measure(options)` that returns figures."""
