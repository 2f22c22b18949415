"""What all packages use: errors, events, processes, cancellation, paths, files and text."""
