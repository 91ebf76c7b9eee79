"""The steps of the analysis, one file each: frames in, one frame out. `graph` says in which order."""
