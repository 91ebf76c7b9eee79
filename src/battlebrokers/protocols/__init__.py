"""HOW devices speak: one folder per protocol behind one small interface. Nothing here measures."""
