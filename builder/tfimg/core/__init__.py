"""What every other package uses: errors, processes, cancellation, paths, files, text."""
