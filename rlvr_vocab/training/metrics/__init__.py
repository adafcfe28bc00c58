"""The figures of a training: of each batch, and where its rows and completions are written."""
