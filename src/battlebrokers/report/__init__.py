"""Telling it: terminal, one self-contained HTML file, CSV, JUnit, Markdown. Computes nothing but what is shown."""
