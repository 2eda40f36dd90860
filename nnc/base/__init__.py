"""What every other room may use: dtypes, options, the ambient context, files and processes. Knows only errors."""
