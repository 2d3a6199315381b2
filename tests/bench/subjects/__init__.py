"""One module per subject, each with `measure(options)` that answers figures."""
